"""The plans, fixed before any run: every setting of `python -m experiments.paper`.

No setting was chosen by looking at results of these runs. Learning rate and KL are those of the toy preset; the
coefficients are the paper's (c = 0.2, b0 = 1 on easy and 0.5 on medium questions; we use 0.5 on hard ones too). All
methods, plain GRPO included, keep the answer tokens out of the policy term, so that they differ by the bonus alone; the
ablation of the mask changes it for GRPO and for UCB-Con alike.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

BASELINES = {"easy": 1.0, "medium": 0.5, "hard": 0.5, "mixed": 0.5}  # b0 of UCB-Con
# Steps of imitation that make a base policy. The strong one of instance 0 is the policy that the package ships.
POLICIES = {"strong": 800, "weak": 400}
HARD_SAMPLES = 512  # samples that the base policy fails on a hard question, as in the paper
SHIPPED = (0, "strong")


@dataclass(frozen=True)
class Method:
    """One way to train; `settings` are those that differ from the preset."""

    label: str
    bonus: str
    coef: float = 0.2  # of each bonus
    b0: float | None = None  # of UCB-Con; None: the value of the split
    settings: tuple[str, ...] = ()

    def overrides(self, split: str) -> list[str]:
        b0 = BASELINES[split] if self.b0 is None else self.b0
        return [
            "exploration.adv_estimator=grpo",  # the preset's is another one; `settings` may change it
            f"exploration.bonus={self.bonus.replace('ucb_con', f'ucb_con(b0={b0})')}",
            f"exploration.coef={self.coef}",
            *self.settings,
        ]


METHODS = {
    "none": Method("GRPO", "none"),
    "ucb": Method("UCB", "ucb"),
    "ucb_mean": Method("UCB-Mean", "ucb_mean"),
    "ucb_con": Method("UCB-Con", "ucb_con"),
    "batch": Method("Batch", "batch"),
    "batch_positive": Method("Batch-Positive", "batch_positive"),
    "ucb_con+batch": Method("UCB-Con + Batch", "ucb_con+batch"),
}
# Advantage estimators of other papers, without a bonus.
ESTIMATORS = {
    name: Method(label, "none", settings=(f"exploration.adv_estimator={estimator}", *others))
    for name, label, estimator, others in (
        ("dr_grpo", "Dr. GRPO", "dr_grpo", ("actor.loss_agg_mode=seq-mean-token-sum-norm",)),
        ("rloo", "RLOO", "rloo", ()),
        ("maxrl", "MaxRL", "maxrl", ()),
        ("pass_at_k", "Pass@k Training, k = 4", "pass_at_k(k=4)", ()),
        ("pkpo", "PKPO, k = 4", "pkpo(k=4)", ()),
        ("edas", "EDAS", "edas(alpha=0.4)", ()),
        ("majority", "TTRL: majority vote, no gold answers", "majority", ()),
    )
}
# An estimator and a bonus together. Of c = .2 and 1 the tabular model predicts the higher sum of pass@1 and pass@32 for
# .2, on the rule tables of `CONFIRM` (`doses` of results/grid/predictions.json).
SUMS = {
    f"{name}+batch": Method(f"{ESTIMATORS[name].label} + Batch", "batch", settings=ESTIMATORS[name].settings)
    for name in ("maxrl", "pass_at_k", "pkpo")
}
# Ways to keep what the policy could do: twenty times the KL term, half the learning rate.
GENTLE = {
    f"{name}-{way}": Method(f"{METHODS[name].label}, {label}", METHODS[name].bonus, settings=(setting,))
    for name in ("none", "batch")
    for way, label, setting in (
        ("kl", "KL 0.02", "actor.kl_loss_coef=0.02"),
        ("slow", "lr 1e-4", "actor.optim.lr=1e-4"),
    )
}
# The paper's runs of RL as sampling: twice the samples of the other runs, compared with as many of the base policy.
SAMPLING = {"none@16": Method("GRPO, n = 16", "none", settings=("rollout.n=16",))}
# One setting changed at a time, on the medium split of the strong policies.
ABLATIONS = {
    **{
        f"{bonus}-mask-{mode}": Method(
            f"{METHODS[bonus].label}, answer mask {mode}",
            METHODS[bonus].bonus,
            settings=(f"exploration.answer_mask_mode={mode}",),
        )
        for bonus, mode in product(("none", "ucb_con"), ("bonus", "all", "none"))
        if (bonus, mode) != ("none", "bonus")  # without a bonus that is no mask at all
    },
    "ucb_con-b0-0": Method("UCB-Con, b0 = 0", "ucb_con", b0=0.0),
    "ucb_con-b0-1": Method("UCB-Con, b0 = 1", "ucb_con", b0=1.0),
    "ucb_con-c-0.1": Method("UCB-Con, c = 0.1", "ucb_con", 0.1),
    "ucb_con-c-1": Method("UCB-Con, c = 1", "ucb_con", 1.0),
    "ucb-c-1": Method("UCB, c = 1", "ucb", 1.0),
    "batch-c-1": Method("Batch, c = 1", "batch", 1.0),
    "ucb_con-math_verify": Method(
        "UCB-Con, math-verify", "ucb_con", settings=("exploration.outcome=outcome_rl.outcomes.paper:PaperClasses",)
    ),
}
# Sampled gradients of logits (experiments/sampled): of tokens less probable than one in fifty.
SAMPLED = {
    f"{name}-sampled": replace(method, label=f"{method.label}, sampled", settings=(*method.settings, setting))
    for name, method in (("none", METHODS["none"]), ("maxrl+batch", SUMS["maxrl+batch"]))
    for setting in ("actor.sample_below=0.02",)
}
ALL = METHODS | ESTIMATORS | SUMS | GENTLE | SAMPLING | SAMPLED | ABLATIONS
ABLATION_SPLIT, ABLATION_POLICY = "medium", "strong"


class Cell(NamedTuple):
    """Common inputs of the runs that are compared: a rule table of the task, a base policy, and a training split."""

    instance: int
    policy: str
    split: str

    @property
    def name(self) -> str:
        return f"{self.instance}-{self.policy}-{self.split}"


class Run(NamedTuple):
    """One training."""

    cell: Cell
    method: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.cell.name}-{self.method}-seed{self.seed}"


@dataclass(frozen=True)
class Plan:
    """The extent of a plan."""

    name: str
    instances: tuple[int, ...]
    policies: tuple[str, ...]
    splits: tuple[str, ...]
    methods: tuple[str, ...]
    ablations: tuple[str, ...]
    seeds: tuple[int, ...]
    steps: int
    # Questions per step, and samples per question.
    batch: int
    n: int
    # Steps between evaluations on the validation and test questions.
    test_freq: int
    train_questions: int
    validation_questions: int
    test_questions: int
    # Samples per question in evaluation.
    test_samples: int
    # Questions among which hard ones are searched.
    hard_pool: int
    # Upper limit of hard questions to train on.
    hard_questions: int
    hard_samples: int = HARD_SAMPLES
    # Final figures are means over this many evaluations, the last ones.
    final_evaluations: int = 1

    def base_samples(self) -> dict[str, int]:
        """Return base sampling by name -> samples per question and step: as many as its methods draw."""
        return {"base": self.n} | ({"base@16": 16} if "none@16" in self.methods else {})

    def cells(self) -> list[Cell]:
        return [Cell(*place) for place in product(self.instances, self.policies, self.splits)]

    def runs(self) -> Iterator[Run]:
        """Yield the runs seed by seed, so that a plan that is stopped early has compared all methods on some seeds."""
        for seed in self.seeds:
            for cell in self.cells():
                yield from (Run(cell, method, seed) for method in self.methods)
                if (cell.split, cell.policy) == (ABLATION_SPLIT, ABLATION_POLICY):
                    yield from (Run(cell, method, seed) for method in self.ablations)


QUICK = Plan(
    name="quick",
    instances=(0,),
    policies=("strong",),
    splits=("medium", "hard"),
    methods=("none", "ucb", "ucb_con", "batch"),
    ablations=(),
    seeds=(0, 1),
    steps=64,
    batch=32,
    n=8,
    test_freq=16,
    train_questions=256,
    validation_questions=64,
    test_questions=192,
    test_samples=32,
    hard_pool=3072,
    hard_questions=32,
)
FULL = Plan(
    name="full",
    instances=(0, 1),
    policies=tuple(POLICIES),
    splits=("easy", "medium", "hard"),
    methods=tuple(METHODS),
    ablations=tuple(name for name in ABLATIONS if name != "ucb-c-1"),  # which is of the plan toy
    seeds=(0, 1, 2),
    steps=120,
    batch=64,
    n=8,
    test_freq=24,
    train_questions=512,
    validation_questions=128,
    test_questions=384,
    test_samples=32,
    hard_pool=12288,
    hard_questions=128,
)
# The toy preset's own task with the paper's coefficient and a large one.
TOY = Plan(
    name="toy",
    instances=(0,),
    policies=("strong",),
    splits=("medium",),
    methods=("none", "ucb_con", "batch"),
    ablations=("ucb-c-1", "batch-c-1"),
    seeds=(0, 1),
    steps=152,
    batch=64,
    n=8,
    test_freq=76,
    train_questions=512,
    validation_questions=128,
    test_questions=1024,
    test_samples=32,
    hard_pool=0,
    hard_questions=0,
)
# The methods of this library side by side, on three rule tables.
METHODS_TABLE = Plan(
    name="methods",
    instances=(0, 1, 2),
    policies=("strong",),
    splits=("medium",),
    methods=("none", *ESTIMATORS, "ucb", "ucb_mean", "ucb_con", "batch", "batch_positive"),
    ablations=(),
    seeds=(0,),
    steps=80,
    batch=64,
    n=8,
    test_freq=80,
    train_questions=512,
    validation_questions=32,
    test_questions=384,
    test_samples=32,
    hard_pool=0,
    hard_questions=0,
)
# The study that decides: one unit a rule table. In 96 steps of 64 questions each of the 128 training questions is drawn
# 48 times, so it is sampled 384 times; the paper's runs sample each question of its medium data 373 times.
CONFIRM = Plan(
    name="confirm",
    instances=tuple(range(10)),
    policies=("strong",),
    splits=("medium",),
    methods=("none", "ucb", "ucb_mean", "ucb_con", "batch", "batch_positive", "none@16"),
    ablations=(),
    seeds=(0, 1),
    steps=96,
    batch=64,
    n=8,
    test_freq=16,
    train_questions=128,
    validation_questions=32,
    test_questions=128,
    test_samples=128,
    hard_pool=0,
    hard_questions=0,
    final_evaluations=3,
)
# Training on hard questions, as many and as often as in `CONFIRM`. The claims are about training and its end.
HARD = replace(
    CONFIRM,
    name="hard",
    splits=("hard",),
    methods=("none", "ucb_con", "batch"),
    seeds=(0,),
    test_freq=96,
    test_samples=32,
    hard_pool=12288,
    hard_questions=128,
    final_evaluations=1,
)
# Estimators and bonuses, on rule tables that no other study has seen, for which the tabular model has predicted the
# differences (experiments/paper/grid.py). The settings are those of `CONFIRM`.
GRID = replace(
    CONFIRM,
    name="grid",
    instances=tuple(range(100, 116)),
    methods=(
        *("none", "ucb_con", "ucb_con-c-1", "batch", "batch-c-1", "batch_positive"),
        *("maxrl", "pass_at_k", "pkpo", *SUMS),
    ),
    seeds=(0,),
)
# RL as sampling, three times as long as in `CONFIRM`: the paper's first finding.
SAMPLING_LONG = replace(
    CONFIRM,
    name="sampling",
    instances=tuple(range(100, 110)),
    methods=("none@16",),
    seeds=(0,),
    steps=3 * CONFIRM.steps,
    test_freq=CONFIRM.steps,
    final_evaluations=1,
)
# The estimators that `GRID` decided for on medium questions, on hard ones of the same rule tables (hard_questions.py).
HARD_ESTIMATORS = replace(
    HARD,
    name="hard-estimators",
    instances=GRID.instances,
    methods=("none", "batch", "maxrl", "maxrl+batch", "pkpo"),
)
# Hard questions without forgetting: hard ones alone and mixed with medium ones, half of each (hard_questions.py).
FORGETTING = replace(
    HARD,
    name="forgetting",
    instances=tuple(range(130, 140)),
    splits=("hard", "mixed"),
    methods=("none", "batch", *GENTLE),
)
# Whether sampled gradients train as exact ones do (experiments/sampled), on rule tables that no other study has seen.
EQUIVALENCE = replace(
    CONFIRM,
    name="sampled",
    instances=tuple(range(200, 216)),
    methods=tuple(name for sampled in SAMPLED for name in (sampled.removesuffix("-sampled"), sampled)),
    seeds=(0,),
)
# A test of the machinery, far too small for the claims.
SMOKE = Plan(
    name="smoke",
    instances=(0,),
    policies=("strong",),
    splits=("medium", "hard"),
    methods=("none", "batch"),
    ablations=("ucb_con-c-1",),
    seeds=(0,),
    steps=4,
    batch=4,
    n=4,
    test_freq=2,
    train_questions=8,
    validation_questions=4,
    test_questions=8,
    test_samples=32,
    hard_pool=64,
    hard_questions=4,
    hard_samples=4,
)
PLANS = {
    plan.name: plan
    for plan in (
        *(
            QUICK,
            FULL,
            CONFIRM,
            HARD,
            GRID,
            HARD_ESTIMATORS,
            SAMPLING_LONG,
            FORGETTING,
            EQUIVALENCE,
            TOY,
            METHODS_TABLE,
            SMOKE,
        ),
    )
}
HELP = {
    "quick": "two splits, four methods, two seeds; minutes on two cores",
    "full": "every split, method and ablation; a night on a CPU",
    "confirm": "the study that decides: ten rule tables; three hours on two cores",
    "hard": "three methods on hard questions of ten rule tables; an hour on two cores",
    "grid": "estimators and bonuses, predicted beforehand: sixteen rule tables; eight hours on one core",
    "hard-estimators": "estimators on hard questions, predicted: sixteen rule tables; three hours on one core",
    "sampling": "GRPO with n = 16, three times as long: ten rule tables; three hours on one core",
    "forgetting": "hard questions, alone and mixed with others: ten rule tables; four hours on one core",
    "sampled": "sampled gradients of logits: sixteen rule tables; three hours on one core",
    "toy": "larger coefficients on one rule table; an hour on two cores",
    "methods": "every method on three rule tables; half an hour on two cores",
    "smoke": "a test of the machinery",
}
