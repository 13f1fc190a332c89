"""Every estimator, with random bonuses, through an Explorer of two ranks, against the formulas written again in numpy.

`tests/kernels/advantages/test_estimators_in_numpy.py` has the same for a single process, with many more cases.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from method_oracles import ESTIMATORS, Method, Past, random_batch, random_method
from ranks import on_ranks

from outcome_rl import Explorer

RUNS = 8  # of each estimator


def responses_of(batch: list[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    """The arguments of `Explorer.score`, with given outcomes."""
    rows = [
        (f"q{question}", group, columns["keys"][i], columns["correct"][i], columns["rewards"][i], columns["logps"][i])
        for group, (question, columns) in enumerate(batch)
        for i in range(len(columns["keys"]))
    ]
    names = ("question_ids", "group_ids", "outcome_keys", "correct", "rewards", "logps")
    columns = {
        name: [value.item() if isinstance(value, np.generic) else value for value in values]
        for name, values in zip(names, zip(*rows, strict=True), strict=True)
    }
    return columns | {"responses": [""] * len(rows)}


def check_method(explorer: Explorer, method: Method, draw: np.random.Generator) -> None:
    past = Past()
    for _ in range(3):
        batch = random_batch(method, draw)
        rows = responses_of(batch)
        half = len(rows["responses"]) // 2 - 1  # a group spans both ranks
        own = slice(half) if dist.get_rank() == 0 else slice(half, None)
        groups, scored = past.groups(batch), explorer.score(**{name: column[own] for name, column in rows.items()})
        # A group without any answer gets no bonus.
        bonuses = [method.bonuses(group) * group.keys.any() for group in groups]
        for found, expected in (
            (scored.advantages, np.concatenate([method.advantages(group) for group in groups])),
            (scored.bonuses, np.concatenate(bonuses)),
        ):
            # An Explorer computes in float32.
            np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=2e-5, err_msg=str(method.settings))


def check_rank(rank: int) -> None:
    for name in ESTIMATORS:
        for seed in range(RUNS):
            draw = np.random.default_rng(seed)
            method = random_method(name, draw)
            with Explorer(**method.settings, outcome="given", process_group=dist.group.WORLD) as explorer:
                check_method(explorer, method, draw)


class Odd(ValueError):
    """An error that cannot be made from its text."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"{number} {text}")


def refuse(value: object, example: Mapping[str, bool]) -> bool:
    if example["refused"]:
        raise Odd(7, "in is_correct")
    return True


def check_error(rank: int) -> None:
    explorer = Explorer(outcome=len_of, is_correct=refuse, process_group=dist.group.WORLD)
    with explorer, pytest.raises(Odd if rank == 1 else RuntimeError, match="7 in is_correct"):
        explorer.score(["q"] * 2, ["a", "b"], rows=[{"refused": False}, {"refused": rank == 1}])
    assert explorer.questions() == {}


def len_of(response: str, example: object) -> int:
    return len(response)


def test_an_error_of_one_rank_reaches_every_rank(tmp_path: Path) -> None:
    on_ranks(2, check_error, tmp_path)


def test_ranks_give_the_advantages_and_bonuses_of_the_formulas(tmp_path: Path) -> None:
    on_ranks(2, check_rank, tmp_path)
