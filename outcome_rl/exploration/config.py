"""Settings of outcome-based exploration, the same in every training stack."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal, Self

from outcome_rl.outcomes.function_matcher import FunctionMatcher
from outcome_rl.outcomes.functions import OutcomeFunction, given, load_function
from outcome_rl.outcomes.matcher import Judge, OutcomeMatcher
from outcome_rl.settings import setting, settings_of
from outcome_rl_kernels import parse_bonus
from outcome_rl_kernels.advantages.estimators import WITHOUT_REWARDS, parse_adv_estimator
from outcome_rl_kernels.advantages.reference import CountTime, NoAnswerRule, Only, is_zeroed
from outcome_rl_kernels.loss.settings import AnswerMaskMode


@dataclass(frozen=True)
class ExplorationConfig:
    """Settings of outcome-based exploration, the same in every training stack.

    Raises:
        TypeError, ValueError: a setting has the wrong type, or is outside its range.
    """

    adv_estimator: str = setting(
        "grpo",
        "Advantage from rewards and outcomes: grpo, dr_grpo, rloo, maxrl, pass_at_k(k=4), pkpo(k=4), unlikeliness, "
        "majority, edas, or your own by register_adv_estimator, as module:function.",
    )
    bonus: str = setting(
        "ucb_con",
        "Exploration bonus: none, ucb, ucb_mean, ucb_con, batch, batch_positive, your own by register_bonus, as "
        'module:function, or several joined by "+".',
    )
    coef: float | list[float] = setting(0.1, "Coefficient of the bonus; a list has one for each method of a sum.", ge=0)
    baseline: float = setting(0.5, "Baseline b0 of ucb_con; the paper uses 1 for easy and 0.5 for medium data.")
    exponent: float = setting(0.5, "Exponent e of the ucb methods, whose raw bonus is min(1, N^-e).", ge=0)
    schedule_batches: int | None = setting(
        None, "Batches over which coef and baseline change linearly to coef_end and baseline_end; null: never.", gt=0
    )
    coef_end: float = setting(0.0, "With schedule_batches: factor of coef at the end, such as 0 for no bonus.", ge=0)
    baseline_end: float | None = setting(None, "With schedule_batches: baseline at the end; null keeps it.")
    only: Only = setting(
        "all",
        "Responses that get a bonus: all; those that are not correct (incorrect); those of groups without a correct "
        "response and of questions never solved before (unsolved).",
    )
    count: CountTime = setting(
        "before", "Counts of the bonus: before the batch, as if its responses came at once, or after it."
    )
    halve_counts_every: int | None = setting(
        None, "Batches after which every count is halved, rounded up, so that bonuses come back; null: never.", gt=0
    )
    zero_when_all_correct: bool | None = setting(
        None,
        "Whether a group whose answers are all correct gets no bonus; null follows the paper: yes for ucb_mean and "
        "ucb_con.",
    )
    no_answer: NoAnswerRule = setting(
        "no_bonus",
        "Response without an answer: no_bonus gives it the raw bonus 0, own_class treats it like any other outcome.",
    )
    answer_mask_mode: AnswerMaskMode = setting(
        "policy",
        "Answer tokens are kept out of the policy gradient (policy), of the bonus alone (bonus), of the whole loss and "
        "its denominator (all), or of nothing (none).",
    )
    outcome: str | OutcomeFunction = setting(
        "math",
        "Outcome of a response: math is the final answer; module:function names a function (response, example) -> "
        "outcome or None, where example is the data row; given takes the keys of Explorer.score(outcome_keys=...).",
    )
    is_correct: str | OutcomeFunction = setting(
        "",
        "With an outcome function: module:function names a function (outcome, example) -> bool; empty compares with "
        "the outcome of the gold answer.",
    )
    equivalence: Literal["canonical", "math_verify"] | Judge = setting(
        "canonical",
        "When two answers are the same: canonical compares canonical texts and asks math-verify about the rest, "
        "math_verify asks it about every pair, as the paper did; in Python also a function (a, b) -> bool.",
    )
    workers: int | None = setting(
        None, "Number of math-verify processes; null starts one per CPU core.", gt=0, affects_results=False
    )
    timeout_s: float = setting(5.0, "Seconds that one comparison by math-verify may take.", gt=0)
    grading_limit_s: float = setting(
        600.0,
        "Seconds that the comparisons of one step, or its calls of an isolated function, may take together; those that "
        "have not begun then count as different, or as no answer, are logged, and are counted in outcomes/unresolved.",
        gt=0,
    )
    gold_tolerance: bool = setting(
        False,
        "Whether an answer that differs from the gold answer in rounding, labels or units alone is correct; outcomes "
        "stay strict.",
    )

    def __post_init__(self) -> None:
        for one in settings_of(self):
            one.check()
        for name in (self.adv_estimator.partition("(")[0], *self.bonus.split("+")):
            if ":" in name:
                load_function(name.strip())  # its module registers it
        methods = parse_bonus(self.bonus)
        parse_adv_estimator(self.adv_estimator)
        if self.schedule_batches is None and (self.coef_end or self.baseline_end is not None):
            raise ValueError("coef_end and baseline_end need schedule_batches, the number of batches; got null")
        if isinstance(self.coef, list | tuple) and len(self.coef) != len(methods):
            raise ValueError(
                f"coef must be one number, or one for each method of bonus={self.bonus!r}, {len(methods)} in all; got "
                f"{self.coef}"
            )
        if self.is_correct and self.outcome in ("math", "given"):
            raise ValueError(
                f"is_correct needs an outcome function, whose values it takes; got outcome={self.outcome!r}"
            )

    def matcher(self) -> OutcomeMatcher | FunctionMatcher:
        """Return a new matcher with these settings.

        Raises:
            ValueError: a named function cannot be imported.
        """
        if self.outcome == "math":
            return OutcomeMatcher(self.equivalence, self.workers, self.timeout_s, gold_tolerance=self.gold_tolerance)
        return FunctionMatcher(given if self.outcome == "given" else self.outcome, self.is_correct or None)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any], origin: str) -> Self:
        """Read the settings from the configuration of another stack.

        Args:
            settings: any of the fields.
            origin: where they are written, for errors.

        Raises:
            TypeError, ValueError: a setting is unknown (the nearest valid one is named), of the wrong type, or out of
                range.
        """
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                nearest = get_close_matches(str(name), known, n=1)
                hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(known)}"
                raise ValueError(f"{origin}: unknown setting {name!r}; {hint}")
        return cls(**settings)

    @property
    def explores(self) -> bool:
        """Return whether there is a bonus at all."""
        return parse_bonus(self.bonus) != ("none",)

    @property
    def needs_rewards(self) -> bool:
        """Return whether the advantages depend on rewards, which `majority` takes from the answers themselves."""
        return parse_adv_estimator(self.adv_estimator)[0] not in WITHOUT_REWARDS

    @property
    def needs_correctness(self) -> bool:
        """Return whether the bonus depends on correctness: `only`, or the rule for groups that are all correct."""
        zeroed = any(is_zeroed(method, self.zero_when_all_correct) for method in parse_bonus(self.bonus))
        return self.explores and (zeroed or self.only != "all")

    def group_settings(self, batches: int) -> dict[str, Any]:
        """Return the arguments of `group_advantages` that are settings, after a number of batches."""
        names = ("adv_estimator", "bonus", "exponent", "zero_when_all_correct", "no_answer", "only")
        given = {name: getattr(self, name) for name in names}
        done = 0.0 if self.schedule_batches is None else min(batches / self.schedule_batches, 1.0)
        factor = 1 + (self.coef_end - 1) * done
        end = self.baseline if self.baseline_end is None else self.baseline_end
        coefs = self.coef if isinstance(self.coef, list | tuple) else [self.coef] * len(parse_bonus(self.bonus))
        return given | {"coef": [c * factor for c in coefs], "baseline": self.baseline + (end - self.baseline) * done}
