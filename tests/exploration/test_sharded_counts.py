"""Counts sharded by question over ranks, by the recipe of docs/counts.md, equal those of one table."""

import random
import zlib
from pathlib import Path
from typing import Any

import torch

from outcome_rl import Explorer

WORLD, STEPS, QUESTIONS, N = 4, 3, 24, 4
SETTINGS: dict[str, Any] = {"bonus": "ucb_con+batch", "coef": [0.2, 1.0], "baseline": 0.5}
Row = tuple[str, str, str]  # question id, response, gold answer


def owner(question_id: str) -> int:
    return zlib.crc32(question_id.encode()) % WORLD


def batch(step: int) -> list[Row]:
    """Groups of a third of the questions."""
    draw = random.Random(step)
    chosen = draw.sample(range(QUESTIONS), QUESTIONS // 3)
    return [(f"q{one}", f"so \\boxed{{{draw.choice([one, 1, 2, 3])}}}", str(one)) for one in chosen for _ in range(N)]


def test_counts_sharded_by_question_equal_those_of_one_table(tmp_path: Path) -> None:
    """The ranks are explorers of one process: between them the recipe only moves rows."""
    whole, shards = Explorer(**SETTINGS), [Explorer(**SETTINGS) for _ in range(WORLD)]
    for step in range(STEPS):
        if step == 2:  # each rank saves and reads its own shard
            for rank, shard in enumerate(shards):
                shard.save(tmp_path / f"rank_{rank}")
            shards = [Explorer.load(tmp_path / f"rank_{rank}") for rank in range(WORLD)]
        rows = batch(step)
        expected = whole.score(*map(list, zip(*rows, strict=True)))
        for rank, shard in enumerate(shards):
            own = [place for place, row in enumerate(rows) if owner(row[0]) == rank]
            if own:
                found = shard.score(*map(list, zip(*(rows[place] for place in own), strict=True)))
                for name in ("advantages", "bonuses", "counts"):
                    assert torch.equal(getattr(found, name), getattr(expected, name)[own]), name
    sizes = [len(shard.counts) for shard in shards]
    assert sum(sizes) == len(whole.counts)
    assert 0 < max(sizes) < len(whole.counts)
