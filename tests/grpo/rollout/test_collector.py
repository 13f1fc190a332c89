"""From questions to scored samples: with dynamic sampling the update learns from groups with a gradient alone."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from outcome_rl.exploration.explorer import Explorer
from outcome_rl.grpo.config.schema import SamplingConfig, TrainConfig
from outcome_rl.grpo.data.problems import BatchOrder
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.collector import Collected, Collector
from outcome_rl.grpo.types import Problem, ProblemSet, Rollout, TrainingBatch
from outcome_rl.questions import question_key

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
    ) -> list[Rollout]:
        self.seeds.append(seed)
        return [
            rollout_of(self.policy, prompt, text) for prompt in prompts for text in SCRIPT[PROBLEMS[prompt[0] - 1].id]
        ]

    def update_weights(self, policy: Policy) -> None:
        raise NotImplementedError


class InOrder(BatchOrder):
    def batch(self, step: int) -> list[int]:
        return [(2 * step - 2) % self.num_problems, (2 * step - 1) % self.num_problems]


def rollout_of(policy: Policy, prompt: Sequence[int], text: str) -> Rollout:
    tokens = policy.tokenizer(text, add_special_tokens=False)["input_ids"]
    return Rollout.decoded(policy.tokenizer, prompt, [*tokens, policy.tokenizer.eos_token_id])


@pytest.fixture
def make_collector(
    small_config: Callable[..., TrainConfig], tmp_path: Path, shared_policy: Policy
) -> Callable[..., Collector]:
    def make(*overrides: str) -> Collector:
        config = small_config(tmp_path, "data.train_batch_size=2", *overrides)
        explorer = Explorer(config.exploration)
        prompts = tuple([i + 1] for i in range(len(PROBLEMS)))
        dataset = ProblemSet("scripted", PROBLEMS, "", prompts)
        return Collector(
            config.rollout,
            config.algorithm,
            config.data.max_response_length,
            config.trainer.seed,
            dataset,
            InOrder(len(PROBLEMS), 2, seed=0),
            shared_policy,
            ScriptedEngine(shared_policy),
            explorer,
        )

    return make


def names(collected: Collected) -> list[str]:
    """Question ids of the groups."""
    return [problem.id for problem in collected.problems[::4]]


def texts(batch: TrainingBatch) -> list[str]:
    return [rollout.text for rollout in batch.rollouts]


def sampling_metrics(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name.startswith("sampling/")}


def test_without_the_filter_a_step_is_a_batch(make_collector: Callable[..., Collector]) -> None:
    collector = make_collector("exploration.bonus=none")
    for drawn, chosen in enumerate((["mixed", "solved"], ["wrong", "mixed too"], ["solved too", "mixed again"])):
        collected = collector.collect(drawn)
        assert names(collected) == chosen
        assert [*collected.batch.rollouts] == collected.rollouts
        assert collected.num_batches == 1
        assert sampling_metrics(collected.metrics) == {}


def test_groups_without_a_gradient_are_replaced(make_collector: Callable[..., Collector]) -> None:
    collector = make_collector("exploration.bonus=none", "algorithm.filter_groups.enable=true")
    collected = collector.collect(0)
    assert names(collected) == ["mixed", "solved", "wrong", "mixed too"]
    assert sampling_metrics(collected.metrics) == {"sampling/batches": 2, "sampling/informative_groups": 0.5}
    assert texts(collected.batch) == [*SCRIPT["mixed"], *SCRIPT["mixed too"]]
    assert collected.batch.correct_N.tolist() == [text == RIGHT for text in texts(collected.batch)]
    assert collected.batch.rollouts == [*collected.rollouts[:4], *collected.rollouts[12:]]
    assert torch.equal(collected.batch.advantages_N, collected.scored.advantages[[*range(4), *range(12, 16)]])
    assert collected.num_batches == 2
    collected = collector.collect(2)  # continues after the last batch, into the next epoch
    assert names(collected) == ["solved too", "mixed again", "mixed", "solved"]
    assert texts(collected.batch) == [*SCRIPT["mixed again"], *SCRIPT["mixed"]]
    assert len(set(collector.engine.seeds)) == 4


def test_everything_is_counted_before_anything_is_left_out(make_collector: Callable[..., Collector]) -> None:
    collector = make_collector("algorithm.filter_groups.enable=true", "exploration.bonus=none")
    metrics = collector.collect(0).metrics
    counts = collector.explorer.counts
    assert int(counts.items()[2].sum()) == 4 * 4
    questions = torch.tensor([question_key(problem.id) for problem in PROBLEMS[:4]])
    assert [int((counts.items().question_keys == key).sum()) for key in questions] == [2, 1, 2, 2]
    assert metrics["outcomes/correct_rate"] == 9 / 16  # of all samples, not of those that are learned from
    assert metrics["exploration/solved_fraction"] == 3 / 4


def test_wrong_groups_stay_if_their_bonuses_explore(make_collector: Callable[..., Collector]) -> None:
    collector = make_collector("exploration.bonus=ucb_con", "algorithm.filter_groups.enable=true")
    collected = collector.collect(0)
    assert names(collected) == ["mixed", "solved", "wrong", "mixed too"]
    assert texts(collected.batch) == [*SCRIPT["mixed"], *SCRIPT["wrong"]]  # a batch is full; the rest is left out
    assert collected.batch.advantages_N[4:].tolist() == [0.0] * 4
    assert (collected.batch.bonuses_N[4:] > 0).all()


@pytest.mark.parametrize(("first", "informative"), [(SCRIPT["mixed"], 0.5), ([WRONG] * 4, 0)])
def test_a_step_may_learn_from_fewer_groups_or_none(
    first: list[str], informative: float, make_collector: Callable[..., Collector], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCRIPT, "mixed", first)
    few = ("algorithm.filter_groups.enable=true", "algorithm.filter_groups.max_num_gen_batches=1")
    collected = make_collector("exploration.bonus=none", *few).collect(0)
    assert texts(collected.batch) == (first if informative else [])
    assert sampling_metrics(collected.metrics) == {"sampling/batches": 1, "sampling/informative_groups": informative}


def test_a_group_that_is_left_out_of_the_loss_is_replaced(make_collector: Callable[..., Collector]) -> None:
    few = ("algorithm.filter_groups.enable=true", "algorithm.filter_groups.max_num_gen_batches=1")
    collector = make_collector("exploration.bonus=none", "algorithm.mask_truncated_completions=true", *few)
    generate = collector.engine.generate

    def cut_off(*arguments: Any) -> list[Rollout]:
        return [one._replace(token_ids=one.token_ids[:-1]) for one in generate(*arguments)]  # without their end tokens

    collector.engine.generate = cut_off
    collected = collector.collect(0)
    assert collected.scored.advantages.any()
    assert len(collected.batch) == 0


def test_responses_that_lack_something_end_the_step(make_collector: Callable[..., Collector]) -> None:
    with pytest.raises(ValueError, match=r"must return logps, which rollout\.importance_cap=2.0 reads"):
        make_collector("rollout.importance_cap=2").collect(0)


@pytest.mark.parametrize("mask", [True, False])
def test_truncated_responses_may_be_left_out_of_the_loss(
    mask: bool, make_collector: Callable[..., Collector], shared_policy: Policy
) -> None:
    collector = make_collector(f"algorithm.mask_truncated_completions={str(mask).lower()}")
    rollouts = collector.engine.generate([[1], [2]], SamplingConfig(n=4), 16, 0)
    rollouts[1] = rollouts[1]._replace(token_ids=rollouts[1].token_ids[:-1])  # without its end token
    batch, scored = collector.score(PROBLEMS[:2], rollouts)
    assert batch.trained_N.tolist() == [True, not mask, *[True] * 6]
    assert int(scored.correct.sum()) == 6  # rewards are of all


def test_lengths(make_collector: Callable[..., Collector]) -> None:
    collector = make_collector("data.max_response_length=4")
    assert len(SCRIPT["mixed"][0].split()) == 3  # and an end token
    metrics = collector.collect(0).metrics
    assert (metrics["response/tokens_mean"], metrics["response/at_limit"]) == (4, 1)


# Scoring. Group a: right, wrong, wrong the same, no answer; group b: all right.

QUESTIONS = [Problem("a", "?", "4"), Problem("b", "?", "7")]
RESPONSES = [r"1 + 3 = 4 \boxed{ 4 }", r"\boxed{ 5 }", r"2 \boxed{ 5 }", "1 + 3", *[r"\boxed{ 7 }"] * 4]


@pytest.fixture(scope="module")
def rollouts(shared_policy: Policy) -> list[Rollout]:
    return [rollout_of(shared_policy, [1], text) for text in RESPONSES]


def test_a_batch_holds_what_was_scored(make_collector: Callable[..., Collector], rollouts: list[Rollout]) -> None:
    collector = make_collector("exploration.adv_estimator=grpo", "exploration.bonus=ucb")
    collector.score(QUESTIONS, rollouts)
    batch, scored = collector.score(QUESTIONS, rollouts)
    assert batch.rollouts == rollouts
    assert batch.correct_N.tolist() == [True, False, False, False, *[True] * 4]
    assert [answer and answer.text.strip() for answer in scored.answers] == ["4", "5", "5", None, *["7"] * 4]
    rewards = torch.tensor([1.0, 0, 0, 0])
    torch.testing.assert_close(batch.advantages_N[:4], (rewards - 0.25) / (rewards.std() + 1e-6))
    assert batch.advantages_N[4:].tolist() == [0.0] * 4
    for column, scores in ((batch.advantages_N, scored.advantages), (batch.bonuses_N, scored.bonuses)):
        assert scores.any()
        assert torch.equal(column, scores)


def test_answer_spans_cover_the_answers(
    make_collector: Callable[..., Collector], rollouts: list[Rollout], shared_policy: Policy
) -> None:
    batch, _ = make_collector().score(QUESTIONS, rollouts)
    pairs = zip(rollouts, batch.spans_N2.tolist(), strict=True)
    spelled = [shared_policy.tokenizer.decode(rollout.token_ids[slice(*span)]) for rollout, span in pairs]
    assert spelled == ["4", "5", "5", "", "7", "7", "7", "7"]
    unmasked, _ = make_collector("exploration.answer_mask_mode=none").score(QUESTIONS, rollouts)
    assert not unmasked.spans_N2.any()


def test_a_question_twice_in_a_step_is_two_groups(
    make_collector: Callable[..., Collector], rollouts: list[Rollout]
) -> None:
    same = [QUESTIONS[0], QUESTIONS[0]]
    batch, _ = make_collector("exploration.bonus=none").score(same, [*rollouts[:4], *rollouts[1:4], rollouts[1]])
    assert batch.advantages_N[4:].tolist() == [0.0] * 4  # all wrong; together with the first group it is not


def test_rows_of_the_samples_file(make_collector: Callable[..., Collector], rollouts: list[Rollout]) -> None:
    batch, scored = make_collector("exploration.bonus=none").score(QUESTIONS, rollouts)
    problems = [question for question in QUESTIONS for _ in range(4)]
    found = Collected(problems, rollouts, scored, batch, 1, {}, 0.0, 0.0).rows(7, range(8))
    four, five, also_five, _, *sevens = (row["key"] for row in found)
    assert four != five == also_five
    assert len({*sevens}) == 1
    assert found[3] == {
        "step": 7,
        "question_id": "a",
        "question": "?",
        "gold": "4",
        "completion": "1 + 3",
        "outcome": None,
        "key": "0" * 16,
        "correct": False,
        "reward": 0.0,
        "count": 0,
        "bonus": 0.0,
        "advantage": float(batch.advantages_N[3]),
    }
    assert found[0]["outcome"].strip() == "4"
    assert found[0]["reward"] == 1.0
