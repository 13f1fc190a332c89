"""Counts sharded by question over four processes, by the recipe of docs/counts.md, equal those of one table."""

import random
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks

from outcome_rl import Explorer
from outcome_rl.exploration.scored import Scored

WORLD, STEPS, QUESTIONS, N = 4, 3, 24, 4
SETTINGS: dict[str, Any] = {"bonus": "ucb_con+batch", "coef": [0.2, 1.0], "baseline": 0.5}
Row = tuple[str, str, str]  # question id, response, gold answer


def owner(question_id: str) -> int:
    return zlib.crc32(question_id.encode()) % WORLD


def score_sharded(explorer: Explorer, mine: list[Row]) -> list[tuple[float, float, int]]:
    """Score this rank's rows, each at the rank that owns its question: advantage, bonus and count of each."""
    rank = dist.get_rank()
    rows: list[Any] = [None] * WORLD
    dist.all_gather_object(rows, mine)
    owned = [
        (source, place, row)
        for source in range(WORLD)
        for place, row in enumerate(rows[source])
        if owner(row[0]) == rank
    ]
    found = []
    if owned:
        columns = zip(*(row for _, _, row in owned), strict=True)
        scored = explorer.score(*map(list, columns))
        values = zip(scored.advantages.tolist(), scored.bonuses.tolist(), scored.counts.tolist(), strict=True)
        found = [(source, place, value) for (source, place, _), value in zip(owned, values, strict=True)]
    answers: list[Any] = [None] * WORLD
    dist.all_gather_object(answers, found)
    own = {place: value for part in answers for source, place, value in part if source == rank}
    return [own[place] for place in range(len(mine))]


def batch(step: int) -> list[Row]:
    """Groups of a third of the questions; the answers of a group are on several ranks."""
    draw = random.Random(step)
    chosen = draw.sample(range(QUESTIONS), QUESTIONS // 3)
    return [(f"q{one}", f"so \\boxed{{{draw.choice([one, 1, 2, 3])}}}", str(one)) for one in chosen for _ in range(N)]


def check(rank: int, folder: Path) -> None:
    whole, shard = Explorer(**SETTINGS), Explorer(**SETTINGS)
    for step in range(STEPS):
        if step == 2:  # each rank saves and reads its own shard
            shard.save(folder / f"rank_{rank}")
            shard = Explorer.load(folder / f"rank_{rank}")
        rows = batch(step)
        expected: Scored = whole.score(*map(list, zip(*rows, strict=True)))
        got = score_sharded(shard, rows[rank::WORLD])
        for name, column in zip(("advantages", "bonuses", "counts"), zip(*got, strict=True), strict=True):
            wanted = getattr(expected, name)[rank::WORLD]
            assert torch.equal(torch.tensor(column, dtype=wanted.dtype), wanted), name
    sizes: list[Any] = [None] * WORLD
    dist.all_gather_object(sizes, len(shard.counts))
    assert sum(sizes) == len(whole.counts)
    assert 0 < max(sizes) < len(whole.counts)


@pytest.mark.slow
def test_counts_sharded_over_four_processes_equal_those_of_one_table(tmp_path: Path) -> None:
    on_ranks(WORLD, check, tmp_path, tmp_path)
