"""The source that says which responses are correct: the first that is declared, or none."""

from typing import Any

import pytest
import torch

from outcome_rl.outcomes.batch import Batch


@pytest.mark.parametrize(
    ("columns", "is_correct", "source"),
    [
        ({"correct": [True, False, True], "golds": ["1"] * 3}, True, "is_correct"),
        ({"correct": [True, False, True], "golds": ["1"] * 3, "rewards": [1, 0, 0]}, False, "correct"),
        ({"golds": ["1", "", ""], "rewards": [1, 0, 0]}, False, "golds"),
        ({"rewards": [1, 0, 1]}, False, "scores"),
        ({"rewards": torch.tensor([1, 0, 1], dtype=torch.bfloat16).requires_grad_()}, False, "scores"),
        ({"rewards": [0.5, -0.2, 0.7], "scores": [[1.0], [0.0], [True]]}, False, "scores"),
        ({}, False, "there are no rewards"),
        ({"rewards": [1, 0, -1]}, False, "but also -1"),
        ({"rewards": [1, 0, 1.25]}, False, "but also 1.25"),
        ({"rewards": [1, 0, float("nan")]}, False, "but also nan"),
        ({"rewards": [1, 0, 1], "scores": [0.9, 0, 1]}, False, "but also 0.9"),
        ({"rewards": [1, 0, 1], "scores": [[1, 0], [0, 0], [1, 0]]}, False, "of 2 functions"),
    ],
)
def test_correctness_has_one_source_or_is_unknown(columns: dict[str, Any], is_correct: bool, source: str) -> None:
    found = Batch(["q"] * 3, ["1", "2", "3"], **columns).correctness(is_correct=is_correct)
    assert (source in found.unknown) if " " in source else (found[::2] == (source, ""))
    assert bool(found.unknown) is not bool(found.source)
    assert (found.of_scores is not None) == (source == "scores")
    if found.of_scores is not None:
        assert found.of_scores.tolist() == [True, False, True]


@pytest.mark.parametrize("scores", [[1.0, 0.0], [[[1.0]]] * 3])
def test_scores_of_another_shape_are_refused(scores: Any) -> None:
    with pytest.raises(ValueError, match="scores must be 3 numbers"):
        Batch(["q"] * 3, ["1"] * 3, scores=scores).correctness()
