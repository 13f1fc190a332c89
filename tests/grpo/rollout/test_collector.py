"""What an update learns from: with dynamic sampling the groups with a gradient, and everything else counted too."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from outcome_rl.grpo.config.schema import SamplingConfig, TrainConfig
from outcome_rl.grpo.data.problems import BatchOrder, Problem
from outcome_rl.grpo.data.prompts import Prompts
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.collector import Collector
from outcome_rl.grpo.rollout.engine import EngineDied, Rollouts
from outcome_rl.grpo.rollout.scoring import Scorer, question_keys
from outcome_rl.outcomes.matcher import OutcomeMatcher
from outcome_rl_kernels import OutcomeCounts

RIGHT, WRONG, OTHER = r"\boxed{ 4 }", r"\boxed{ 5 }", r"\boxed{ 6 }"
# Four responses to each question; all golds are 4.
SCRIPT = {
    "mixed": [RIGHT, WRONG, WRONG, RIGHT],
    "solved": [RIGHT] * 4,
    "wrong": [WRONG, WRONG, OTHER, WRONG],
    "mixed too": [WRONG, RIGHT, RIGHT, RIGHT],
    "solved too": [RIGHT] * 4,
    "mixed again": [WRONG, WRONG, WRONG, RIGHT],
}
PROBLEMS = tuple(Problem(name, "?", "4") for name in SCRIPT)


class ScriptedEngine:
    """Answers the i-th question, whose prompt is [i + 1], as the script says."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.seeds: list[int] = []

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, max_tokens: int, seed: int
    ) -> Rollouts:
        self.seeds.append(seed)
        texts = [text for (i,) in prompts for text in SCRIPT[PROBLEMS[i - 1].id]]
        end = self.policy.tokenizer.eos_token_id
        ids = [[*self.policy.tokenizer(text, add_special_tokens=False)["input_ids"], end] for text in texts]
        return Rollouts.assemble(self.policy, [prompt for prompt in prompts for _ in range(sampling.n)], ids)

    def update_weights(self, policy: Policy) -> None:
        raise NotImplementedError


@pytest.fixture
def make_collector(
    small_config: Callable[..., TrainConfig], tmp_path: Path, shared_policy: Policy
) -> Callable[..., Collector]:
    def make(*overrides: str) -> Collector:
        config = small_config(tmp_path, "data.train_batch_size=2", "data.shuffle=false", *overrides)
        tokenizer, ends = shared_policy.tokenizer, shared_policy.end_token_ids
        scorer = Scorer(config, tokenizer, ends, OutcomeMatcher(), OutcomeCounts())
        prompts = Prompts(PROBLEMS, [[i + 1] for i in range(len(PROBLEMS))])
        order = BatchOrder(len(PROBLEMS), 2, shuffle=False, seed=0)
        return Collector(config, prompts, order, ScriptedEngine(shared_policy), scorer, drawn=0)

    return make


def names(problems: Sequence[Problem]) -> list[str]:
    return [problem.id for problem in problems]


def test_without_the_filter_a_step_is_a_batch(make_collector: Callable[..., Collector]) -> None:
    collector = make_collector("exploration.bonus=none")
    for chosen in (["mixed", "solved"], ["wrong", "mixed too"], ["solved too", "mixed again"], ["mixed", "solved"]):
        collected = collector.collect()
        assert names(collected.problems) == chosen
        assert collected.batch is collected.scores.batch
        assert collected.metrics == {}
    assert collector.drawn == 4


def test_groups_without_a_gradient_are_replaced(make_collector: Callable[..., Collector]) -> None:
    collector = make_collector("exploration.bonus=none", "algorithm.filter_groups.enable=true")
    collected = collector.collect()
    assert names(collected.problems) == ["mixed", "solved", "wrong", "mixed too"]
    assert collected.metrics == {"sampling/batches": 2, "sampling/informative_groups": 0.5}
    assert collected.batch.rollouts.texts == [*SCRIPT["mixed"], *SCRIPT["mixed too"]]
    assert collected.batch.correct.tolist() == [text == RIGHT for text in collected.batch.rollouts.texts]
    assert torch.equal(collected.batch.advantages, collected.scores.groups.advantages[[0, 3]].flatten())
    collected = collector.collect()  # goes on where the last one stopped, into the next epoch
    assert names(collected.problems) == ["solved too", "mixed again", "mixed", "solved"]
    assert collected.batch.rollouts.texts == [*SCRIPT["mixed again"], *SCRIPT["mixed"]]
    assert collector.drawn == 4
    assert len(set(collector.engine.seeds)) == 4  # type: ignore[attr-defined]


def test_everything_is_counted_before_anything_is_left_out(make_collector: Callable[..., Collector]) -> None:
    collector = make_collector("algorithm.filter_groups.enable=true", "exploration.bonus=none")
    collector.collect()
    _, _, counts = collector.scorer.counts.items()
    assert int(counts.sum()) == 4 * 4
    assert collector.scorer.counts.distinct(question_keys(PROBLEMS[:4])).tolist() == [2, 1, 2, 2]


def test_wrong_groups_stay_where_their_bonuses_explore(make_collector: Callable[..., Collector]) -> None:
    collector = make_collector("exploration.bonus=ucb_con", "algorithm.filter_groups.enable=true")
    collected = collector.collect()
    assert names(collected.problems) == ["mixed", "solved", "wrong", "mixed too"]
    assert collected.batch.rollouts.texts == [*SCRIPT["mixed"], *SCRIPT["wrong"]]  # a batch is full; the rest is over
    assert collected.batch.advantages[4:].tolist() == [0.0] * 4
    assert (collected.batch.bonuses[4:] > 0).all()


def test_a_step_learns_from_what_there_is(make_collector: Callable[..., Collector]) -> None:
    few = ("exploration.bonus=none", "algorithm.filter_groups.enable=true")
    collector = make_collector(*few, "algorithm.filter_groups.max_num_gen_batches=1")
    assert collector.collect().batch.rollouts.texts == SCRIPT["mixed"]


def test_a_step_may_find_nothing(make_collector: Callable[..., Collector], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCRIPT, "mixed", [WRONG] * 4)
    limit = "algorithm.filter_groups.max_num_gen_batches=1"
    collected = make_collector("exploration.bonus=none", "algorithm.filter_groups.enable=true", limit).collect()
    assert collected.batch.rollouts.texts == []
    assert not collected.batch.trained.any()
    assert collected.metrics == {"sampling/batches": 1, "sampling/informative_groups": 0}


@pytest.mark.parametrize("mask", [True, False])
def test_what_was_cut_off_may_be_left_out_of_the_loss(
    mask: bool, make_collector: Callable[..., Collector], shared_policy: Policy
) -> None:
    collector = make_collector(f"algorithm.mask_truncated_completions={str(mask).lower()}")
    rollouts = collector.engine.generate([[1], [2]], SamplingConfig(n=4), 16, 0)
    rollouts.completion_mask[1, -1] = False  # without its end token
    scores = collector.scorer.score(PROBLEMS[:2], rollouts)
    assert scores.batch.trained.tolist() == [True, not mask, *[True] * 6]
    assert scores.correct.sum().item() == 6  # rewards are of all


@pytest.mark.parametrize("calls", [0, 1])
def test_an_engine_that_dies_leaves_the_place_in_the_data(calls: int, make_collector: Callable[..., Collector]) -> None:
    collector = make_collector("exploration.bonus=none", "algorithm.filter_groups.enable=true")
    collector.collect()
    generate, left = collector.engine.generate, calls

    def mortal(*arguments: Any) -> Rollouts:
        nonlocal left
        if left == 0:
            raise EngineDied("the engine died")
        left -= 1
        return generate(*arguments)

    collector.engine.generate = mortal  # type: ignore[method-assign]
    with pytest.raises(EngineDied):
        collector.collect()
    assert collector.drawn == 2
    assert collector.torn == (calls > 0)  # what the first batch of the step brought is counted
