"""The count table and the group advantages on a GPU: exact under contention, and their time."""

from functools import partial

import torch

from bench import counts as counts_bench
from bench.gpu_parts.report import DEVICE, DRY, Figures, Report, require
from outcome_rl_kernels import OutcomeCounts, group_advantages


def counts_are_exact(report: Report) -> str:
    """Compare counts, bonuses and advantages of groups that meet on few questions with the reference."""
    step_of = partial(group_advantages, bonus="0.2*ucb_con + 0.1*batch")
    generator, repetitions, B = torch.Generator().manual_seed(0), 1 if DRY else 60, 2 if DRY else 256
    for repetition in range(repetitions):
        counts, oracle = OutcomeCounts(device=DEVICE, impl="triton"), OutcomeCounts(impl="reference")
        for step in range(2 if DRY else 3):
            questions = torch.randint(1 + repetition, (B,), generator=generator)
            outcomes = torch.randint(5 + step, (B, 8), generator=generator)
            rewards = torch.randint(2, (B, 8), generator=generator).float()
            moved = rewards.to(DEVICE), questions.to(DEVICE), outcomes.to(DEVICE)
            seen = step_of(*moved, counts)
            expected = step_of(rewards, questions, outcomes, oracle)
            torch.testing.assert_close(tuple(seen), tuple(expected), atol=1e-5, rtol=1e-5, check_device=False)
        for column, true in zip(counts.items(), oracle.items(), strict=True):
            require(torch.equal(column.cpu(), true), f"tables differ in repetition {repetition}")
    return f"{repetitions} tables, 3 steps of {B} x 8 each"


def counts_under_contention(report: Report) -> str:
    """Count many rows of few pairs, so that most programs meet on the same slots."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    rows, repetitions = (256, 1) if DRY else (2**18, 200)
    for repetition in range(repetitions):
        counts, few = OutcomeCounts(capacity=4 * rows, device=DEVICE, impl="triton"), 2 + repetition % 40
        questions, outcomes = torch.randint(few, (2, rows), device=DEVICE, generator=generator)
        tally = torch.bincount(questions * few + outcomes, minlength=few**2)[questions * few + outcomes]
        for seen in range(2):
            require(torch.equal(counts.observe(questions, outcomes), seen * tally), f"repetition {repetition}")
        require(counts.total() == 2 * rows, f"the total of repetition {repetition}")
    return f"{repetitions} tables of {rows} rows"


def counting_by_load(report: Report) -> list[dict[str, float]]:
    """Time the counting of a step's 2,048 outcomes at half the load where the table grows, and just below that load."""
    found: list[dict[str, float]] = []
    for load, most_us in ((0.15, 20.0), (0.3, 30.0)):
        found.append(counts_bench.gpu_observe_by_load(load, 10 if DRY else 23, 16 if DRY else 2048, DEVICE))
        report.keep(found)
        report.at_most(f"counting 2,048 outcomes at load {load:g}", most_us, found[-1]["triton_us"], "us")
    return found


def time_of_a_step(report: Report) -> list[dict[str, float]]:
    """Time a step's advantages, two launches of the table and those of PyTorch, with old and with new pairs."""
    small = {"groups": 2, "steps": 1} if DRY else {}
    rows = counts_bench.gpu_group_steps(100 if DRY else 5 * 10**6, DEVICE, **small)
    for row, pairs in zip(rows, ("no", "one in nine", "every"), strict=True):
        report.at_most(f"group_advantages of 256 x 8, {pairs} pair new", 60.0, row["triton_us"], "us")
    return rows


def time_of_counting(report: Report) -> Figures:
    """Time `observe` and growth."""
    tables, batches = ([100], [64]) if DRY else ([10**6, 10**7, 10**8], [2048, 16384, 2**20])
    grown = counts_bench.gpu_growth(100 if DRY else 5 * 10**7, DEVICE)
    return {"observe": counts_bench.gpu_observe(tables, batches, DEVICE), "growth": grown}
