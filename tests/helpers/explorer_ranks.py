"""Score three steps in one process or in several, and write what each rank ends with.

torchrun --nproc-per-node 2 tests/helpers/explorer_ranks.py FOLDER
"""

import gc
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.distributed as dist

from outcome_rl import Explorer


def batch(step: int) -> dict[str, Any]:
    """Six groups of one to four responses to four questions, some of them without an answer."""
    random = Random(step)
    rows = []
    for group in range(6):
        question = random.randrange(4)
        for _ in range(random.randint(1, 4)):
            answer = random.randrange(4)
            text = rf"so \boxed{{{answer}}}" if answer else "no idea"
            rows.append((f"q{question}", text, str(question), float(answer == question), group))
    question_ids, responses, golds, rewards, group_ids = (list(column) for column in zip(*rows, strict=True))
    return {
        "question_ids": question_ids,
        "responses": responses,
        "golds": golds,
        "rewards": rewards,
        "group_ids": group_ids,
    }


def columns(scored: Any) -> dict[str, Any]:
    """The contents of a `Scored`, for comparison."""
    names = ("correct", "rewards", "keys", "counts", "advantages", "bonuses", "groups")
    return {name: getattr(scored, name).tolist() for name in names} | {
        "metrics": scored.metrics,
        "answers": [None if answer is None else tuple(answer[:3]) for answer in scored.answers],
    }


def message(call: Any) -> str:
    """The type and text of what a call raises."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the caller compares it
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def main(folder: Path) -> None:
    """Score on this rank, try what must fail on every rank alike, and save what was found."""
    world_size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    group = None
    if world_size > 1:
        dist.init_process_group("gloo")
        group = dist.group.WORLD
    settings: dict[str, Any] = {"adv_estimator": "beta_bernoulli", "bonus": "ucb_con+batch", "coef": [0.2, 0.5]}
    explorer = Explorer(**settings, gate=[3, 0.1, 0.6], process_group=group, workers=1)

    def own(step: int) -> dict[str, Any]:
        """This rank's part of a batch; its groups span ranks."""
        whole = batch(step)
        bounds = [len(whole["golds"]) * end // world_size for end in (rank, rank + 1)]
        return {name: column[slice(*bounds)] for name, column in whole.items()}

    steps = [columns(explorer.score(**own(step))) for step in range(3)]
    explorer.count(*(own(3)[name] for name in ("question_ids", "responses", "golds")))
    errors = []
    if group is not None:
        other_gold = {**own(0), "golds": ["11" for _ in own(0)["golds"]]}
        two_golds = {"question_ids": ["new"], "responses": ["4"], "golds": [str(rank)]}
        one_fails = {**two_golds, "golds": ["4"], "responses": [4 if rank else "4"]}
        errors = [
            message(lambda: explorer.score(**other_gold)),
            message(lambda: explorer.score(**two_golds)),
            message(lambda: explorer.score(**one_fails)),
        ]
    explorer.save(folder / f"state-{world_size}-{rank}")
    ended = {
        "steps": steps,
        "counts": [column.tolist() for column in explorer.counts.items()],
        "solved": dict(explorer.solved),
        "errors": errors,
    }
    torch.save(ended, folder / f"{world_size}-{rank}.pt")
    explorer.close()
    if group is not None:
        dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
    gc.collect()  # tracebacks refer to the explorer, and it to the group: see outcome_rl/grpo/distributed.py
