"""The curriculum gate: questions that it leaves out, over steps and groups of any size."""

from collections import Counter
from typing import Any

import pytest
import torch
from explorer_rows import score
from hypothesis import given, settings
from hypothesis import strategies as st

from outcome_rl import ExplorationConfig, Explorer
from outcome_rl.exploration.scored import Scored

# A batch: question and answer of each response; the gold of every question is 1.
BATCH = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=9)
GATES = st.tuples(st.integers(1, 6), st.floats(0, 1), st.floats(0, 1)).map(lambda g: [g[0], *sorted(g[1:])])


@settings(max_examples=40, deadline=None)
@given(st.lists(BATCH, min_size=1, max_size=6), GATES.filter(lambda gate: gate[1:] != [0, 1]))
def test_a_question_is_left_out_by_its_samples_before_the_batch(batches: list[Any], gate: list[float]) -> None:
    options: dict[str, Any] = {"bonus": "ucb", "coef": 0.5, "adv_estimator": "beta_bernoulli"}
    plain, gated = Explorer(**options), Explorer(**options, gate=gate)
    visits, right = Counter[int](), Counter[int]()
    for batch in batches:
        expected, found = score(plain, batch), score(gated, batch)
        out = {q for q in visits if visits[q] >= gate[0] and not gate[1] <= right[q] / visits[q] <= gate[2]}
        for row, (question, _) in enumerate(batch):
            for name in ("advantages", "bonuses"):
                wanted = 0.0 if question in out else getattr(expected, name)[row].item()
                assert getattr(found, name)[row].item() == wanted
        asked = {question for question, _ in batch}
        assert found.metrics["exploration/gated_groups"] == pytest.approx(len(asked & out) / len(asked))
        assert "exploration/gated_groups" not in expected.metrics
        visits.update(question for question, _ in batch)
        right.update(question for question, answer in batch if answer == 1)
    assert all(map(torch.equal, plain.counts.items(), gated.counts.items()))


def test_a_selection_and_a_join_know_what_was_left_out() -> None:
    explorer = Explorer(gate=[2, 0.0, 0.9])
    first, second = (score(explorer, [(0, 1), (1, 2), (0, 1)]) for _ in range(2))
    assert second.gated.tolist() == [True, False, True]
    assert second.select([1, 2]).metrics["exploration/gated_groups"] == 0.5
    assert Scored.join([first, second]).metrics["exploration/gated_groups"] == 0.25


@pytest.mark.parametrize(
    "gate", [[0, 0.1, 0.9], [2.5, 0.1, 0.9], [8, 0.9, 0.1], [8, -0.1, 0.5], [8, 0.5], [8, 0, 2.0], [8, 0, 1]]
)
def test_other_numbers_are_refused(gate: list[float]) -> None:
    with pytest.raises(ValueError, match=r"gate must be \[visits, low, high\]"):
        ExplorationConfig(gate=gate)


def test_a_gate_needs_to_know_what_is_correct() -> None:
    explorer = Explorer(gate=[8, 0, 0.9], bonus="ucb")
    with pytest.raises(ValueError, match=r"because gate=\[8, 0, 0.9\] requires correctness labels"):
        explorer.score(["q"], [r"\boxed{1}"], None, [2.0])
