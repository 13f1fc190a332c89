"""The count table under random turns of its programs, against a dictionary.

`interleaving` has the scheduler and its memory model. That it finds errors is shown by mutants of the kernels: each
must fail under some turns, and pass where programs run one after another.
"""

import random
from collections import Counter
from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this platform")

from interleaving import Interleaving, interleave, mutate

from outcome_rl_kernels import OutcomeCounts
from outcome_rl_kernels.counts import triton as counts_triton
from outcome_rl_kernels.counts import triton_kernels

pytestmark = [
    pytest.mark.offline,
    pytest.mark.skipif(torch.cuda.is_available(), reason="interpreted kernels only; a GPU has turns of its own"),
]
Scenario = Callable[[int], None]


def check_table(counts: OutcomeCounts, oracle: "Counter[tuple[int, int]]") -> None:
    found = {(q, o): n for q, o, n, _ in zip(*(column.tolist() for column in counts.items()), strict=True)}
    assert found == oracle
    questions = sorted({question for question, _ in oracle})
    visits, _, distinct = (column.tolist() for column in counts.history(torch.tensor(questions)))
    assert visits == [sum(n for (q, _), n in oracle.items() if q == question) for question in questions]
    assert distinct == [sum(q == question and o != 0 for q, o in oracle) for question in questions]
    assert (len(counts), counts.total()) == (len(oracle), oracle.total())


def observe(seed: int, rows: int = 10) -> None:
    """Batches of few pairs, so that most programs meet, through a growth of the table."""
    generator, oracle = random.Random(seed), Counter[tuple[int, int]]()
    counts = OutcomeCounts(capacity=16, impl="triton")
    for step in range(3):
        pairs = [(generator.randrange(2), generator.randrange(2 + 2 * step)) for _ in range(rows)]
        before = counts.observe(*torch.tensor(pairs).t().contiguous())
        assert before.tolist() == [oracle[pair] for pair in pairs]
        oracle.update(pairs)
        check_table(counts, oracle)


def observe_groups(seed: int, groups: int = 4, samples: int = 3) -> None:
    """Steps in which questions occur in several groups."""
    generator, oracle = random.Random(seed), Counter[tuple[int, int]]()
    counts = OutcomeCounts(capacity=64, impl="triton")
    for _ in range(2):
        questions = [generator.randrange(2) for _ in range(groups)]
        outcomes = [[generator.randrange(3) for _ in range(samples)] for _ in range(groups)]
        pairs = [[(q, o) for o in row] for q, row in zip(questions, outcomes, strict=True)]
        before = counts.observe(torch.tensor(questions), torch.tensor(outcomes))
        assert before.tolist() == [[oracle[pair] for pair in row] for row in pairs]
        oracle.update(pair for row in pairs for pair in row)
        check_table(counts, oracle)


def fails(scenario: Scenario, seed: int, *, in_turns: bool = True) -> bool:
    """Whether the scenario shows an error: of the counts, of the table's own checks, or an access outside of it."""
    with pytest.MonkeyPatch.context() as patches:
        interleave(patches, Interleaving(seed, in_turns=in_turns))
        try:
            scenario(seed)
        except AssertionError:
            return True
        except Exception as error:
            if "outside the tensors" in str(error) or "is damaged" in str(error):
                return True
            raise
    return False


@pytest.fixture
def small_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts_triton, "BLOCK", 4)


@pytest.mark.parametrize("scenario", [observe, observe_groups], ids=lambda scenario: scenario.__name__)
def test_any_turns_give_the_counts_of_a_dictionary(scenario: Scenario, small_programs: None) -> None:
    assert [seed for seed in range(8) if fails(scenario, seed)] == []


CLAIM = 'found = tl.atomic_cas(count_ptr, tl.zeros_like(word), tl.where(claiming, -1 - row, 0), sem="relaxed")'
REHASH = 'found = tl.atomic_cas(slot_ptr + 2, tl.zeros_like(count), tl.where(seeking, count, 0), sem="relaxed")'
ADD = 'tl.atomic_add(slot_ptr + 2, tl.where(claimed, amount + (1 + row), amount), mask=valid, sem="relaxed")'
MUTANTS = {
    "claim by load and store": (
        observe,
        triton_kernels.find_kernel,
        CLAIM,
        "found = tl.load(count_ptr); tl.store(count_ptr, -1 - row, mask=claiming & (found == 0))",
    ),
    "rehash by load and store": (
        observe,
        triton_kernels.rehash_kernel,
        REHASH,
        "found = tl.load(slot_ptr + 2); tl.store(slot_ptr + 2, count, mask=seeking & (found == 0))",
    ),
    "count by load and store": (
        observe,
        triton_kernels.commit_kernel,
        ADD,
        "tl.store(slot_ptr + 2, tl.load(slot_ptr + 2, mask=valid) + tl.where(claimed, amount + (1 + row), amount), "
        "mask=valid)",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_fails_in_turns_and_not_one_after_another(
    name: str, monkeypatch: pytest.MonkeyPatch, small_programs: None
) -> None:
    scenario, function, old, new = MUTANTS[name]
    monkeypatch.setattr(counts_triton, "BLOCK", 1)  # so that no two lanes of one program meet
    mutate(monkeypatch, function, old, new)
    assert any(fails(scenario, seed) for seed in range(10))
    assert not fails(scenario, 0, in_turns=False)
