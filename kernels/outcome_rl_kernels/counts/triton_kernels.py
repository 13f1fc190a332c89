"""How the count table of a GPU is probed, added to and rehashed, in Triton; `triton` holds the table.

Layout: int64 slots (S, 4) of {question, outcome, count, pending}, 32 bytes, one sector, as in csrc/count_table.h; S is
a power of two, a key's home is the high bits of its hash, probing is linear, and at most 0.6 S slots are taken.

Counting a batch has two phases, each of them wait-free, with every program past the first before any begins the second
(two launches; `advantages.triton` does both in one):

1. Find or claim. A slot's `count` word is 0 (empty), positive (holds the pair next to it since an earlier launch) or
   -1 - r: claimed in this launch by row r of the batch. A row that comes to an empty slot claims it by
   compare-and-swap. A row that comes to a claimed slot reads the claimant's key **from the batch**, not from the slot.
2. Commit. Every row adds its amount to its slot's count; the claimant adds 1 + r more, which cancels its claim, and
   writes the key.

Why no interleaving of programs can go wrong:
- In phase 1 a count word changes at most once, from 0 to a claim, and no other word of a slot changes. Keys are read
  only where nothing writes them: positive words stand next to keys of earlier launches, claims point into the batch. So
  nothing that is read can be half written, no order between memory accesses is needed, and nobody waits.
- A plain load of the count word may be stale only by showing 0, and then the compare-and-swap returns the truth.
- Rows of one key walk the same slots. No slot on the way becomes empty, so all of them stop at the same one: the first
  that holds their key, or the first empty one, which exactly one of them wins and the others find won by their own key.
- The count before the batch is the positive word, or 0 for a claim: no row can see another's amount.
- In phase 2 keys are not read, a key is written by its claimant alone, and additions commute: counts do not depend on
  the order, though slots of new pairs do.
- No value of a key is reserved: what marks a slot is its count.

A walk ends after S slots at the latest. It always finds its end before, because at most 0.6 S slots are ever taken: the
host makes room before a launch, by an upper bound of the size that costs no synchronisation (the size it last read, and
all rows since). A launch without room, as the replay of a CUDA graph can be, counts nothing and leaves a mark in
`state`, which the next call that synchronises anyway turns into an error.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# Words of `state`, int64 on the device.
SIZE = tl.constexpr(0)  # pairs
TOTAL = tl.constexpr(1)  # sum of their counts
STATUS = tl.constexpr(2)  # of the bits below, sticky
ARRIVALS = tl.constexpr(3)  # programs of the running launch that are past phase 1 (advantages.triton)
NO_ROOM = tl.constexpr(1)  # a launch was not counted
LOST = tl.constexpr(2)  # a walk found neither its key nor an empty slot: memory was overwritten

# Finaliser of SplitMix64, as in csrc/count_table.cpp: Triton takes 64-bit constants as signed numbers.
_GOLDEN_RATIO = tl.constexpr(0x9E3779B97F4A7C15 - 2**64)
_MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9 - 2**64)
_MIX_2 = tl.constexpr(0x94D049BB133111EB - 2**64)

_BLOCK = 128  # rows a program, one a thread


@triton.jit
def _shift_right(x, bits):
    return (x.to(tl.uint64, bitcast=True) >> bits).to(tl.int64, bitcast=True)


@triton.jit
def _mix64(x):
    x = (x ^ _shift_right(x, 30)) * _MIX_1
    x = (x ^ _shift_right(x, 27)) * _MIX_2
    return x ^ _shift_right(x, 31)


@triton.jit
def _home(question, outcome, shift):
    return _shift_right(_mix64(_mix64(question + _GOLDEN_RATIO) + outcome), shift)


@triton.jit
def find_or_claim(
    slots_ptr,
    state_ptr,
    questions_ptr,
    outcomes_ptr,
    row,  # int64 [BLOCK], of the batch
    valid,  # which rows there are
    slot_count,
    shift,
    may_claim,
    SAMPLES: tl.constexpr,  # outcomes a question
    CLAIMS: tl.constexpr,  # False: a mere lookup
):
    """Phase 1: each row's count before the batch and where phase 2 shall add.

    That is the row's slot, or -1 - slot if the row claimed it, or `slot_count` where nothing is to be added.
    """
    question = tl.load(questions_ptr + row // SAMPLES, mask=valid, other=0)
    outcome = tl.load(outcomes_ptr + row, mask=valid, other=0)
    # Rows that there are not take part in compare-and-swaps: each on another slot, or all would queue for one word.
    slot = tl.where(valid, _home(question, outcome, shift), row & (slot_count - 1))
    word = tl.zeros_like(slot)
    seeking = valid
    steps_left = slot_count
    while (tl.max(seeking.to(tl.int32), 0) > 0) & (steps_left > 0):
        count_ptr = slots_ptr + 4 * slot + 2
        word = tl.where(seeking, tl.load(count_ptr, mask=seeking, other=0), word)
        if CLAIMS:
            claiming = seeking & (word == 0) & may_claim
            if tl.max(claiming.to(tl.int32), 0) > 0:
                # Compare-and-swap takes no mask: for the other rows it exchanges 0 for 0, which changes nothing.
                found = tl.atomic_cas(count_ptr, tl.zeros_like(word), tl.where(claiming, -1 - row, 0), sem="relaxed")
                word = tl.where(claiming, tl.where(found == 0, -1 - row, found), word)
        taken = seeking & (word > 0)
        claimed = seeking & (word < 0)
        claimant = -1 - word
        other = tl.load(slots_ptr + 4 * slot, mask=taken, other=0)
        other = tl.where(claimed, tl.load(questions_ptr + claimant // SAMPLES, mask=claimed, other=0), other)
        seeking = seeking & (word != 0)
        here = seeking & (other == question)
        other = tl.load(slots_ptr + 4 * slot + 1, mask=taken, other=0)
        other = tl.where(claimed, tl.load(outcomes_ptr + claimant, mask=claimed, other=0), other)
        seeking = seeking & ~(here & (other == outcome))
        slot = tl.where(seeking, (slot + 1) & (slot_count - 1), slot)
        steps_left -= 1
    if tl.max(seeking.to(tl.int32), 0) > 0:
        tl.atomic_or(state_ptr + STATUS, LOST, sem="relaxed")
    place = tl.where(word == -1 - row, -1 - slot, slot)
    return tl.maximum(word, 0), tl.where(may_claim & ~seeking, place, slot_count)


@triton.jit
def has_room(state_ptr, rows, limit):
    """Whether a batch may be added; the same for all programs of a launch, as the size changes in phase 2 only."""
    room = tl.load(state_ptr + SIZE) + rows <= limit
    if not room:
        tl.atomic_or(state_ptr + STATUS, NO_ROOM, sem="relaxed")
    return room


@triton.jit
def commit(
    slots_ptr,
    state_ptr,
    questions_ptr,
    outcomes_ptr,
    places_ptr,
    amounts_ptr,  # None: 1 each
    row,
    valid,
    slot_count,
    SAMPLES: tl.constexpr,
    PENDING: tl.constexpr,
):
    """Phase 2."""
    place = tl.load(places_ptr + row, mask=valid, other=0)
    valid = valid & (place != slot_count)
    claimed = valid & (place < 0)
    slot_ptr = slots_ptr + 4 * tl.where(place < 0, -1 - place, place)
    amount = tl.full(row.shape, 1, tl.int64)
    if amounts_ptr is not None:
        amount = tl.load(amounts_ptr + row, mask=valid, other=0)
    tl.atomic_add(slot_ptr + 2, tl.where(claimed, amount + (1 + row), amount), mask=valid, sem="relaxed")
    if PENDING:
        tl.atomic_add(slot_ptr + 3, amount, mask=valid, sem="relaxed")
    tl.store(slot_ptr, tl.load(questions_ptr + row // SAMPLES, mask=claimed, other=0), mask=claimed)
    tl.store(slot_ptr + 1, tl.load(outcomes_ptr + row, mask=claimed, other=0), mask=claimed)
    tl.atomic_add(state_ptr + SIZE, tl.sum(claimed.to(tl.int64), 0), sem="relaxed")
    tl.atomic_add(state_ptr + TOTAL, tl.sum(tl.where(valid, amount, 0), 0), sem="relaxed")


@triton.jit(do_not_specialize=["rows", "slot_count", "shift", "limit"])
def _find_kernel(
    slots_ptr,
    state_ptr,
    questions_ptr,
    outcomes_ptr,
    before_ptr,
    places_ptr,  # None: only look
    rows: tl.int64,
    slot_count: tl.int64,
    shift: tl.int64,
    limit: tl.int64,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = row < rows
    may_claim = False
    if places_ptr is not None:
        may_claim = has_room(state_ptr, rows, limit)
    before, place = find_or_claim(
        slots_ptr,
        state_ptr,
        questions_ptr,
        outcomes_ptr,
        row,
        valid,
        slot_count,
        shift,
        may_claim,
        SAMPLES=1,
        CLAIMS=places_ptr is not None,
    )
    if before_ptr is not None:
        tl.store(before_ptr + row, before, mask=valid)
    if places_ptr is not None:
        tl.store(places_ptr + row, place, mask=valid)


@triton.jit(do_not_specialize=["rows", "slot_count"])
def _commit_kernel(
    slots_ptr,
    state_ptr,
    questions_ptr,
    outcomes_ptr,
    places_ptr,
    amounts_ptr,
    rows: tl.int64,
    slot_count: tl.int64,
    SAMPLES: tl.constexpr,
    PENDING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    commit(
        slots_ptr,
        state_ptr,
        questions_ptr,
        outcomes_ptr,
        places_ptr,
        amounts_ptr,
        row,
        row < rows,
        slot_count,
        SAMPLES,
        PENDING,
    )


@triton.jit(do_not_specialize=["old_slot_count", "slot_count", "shift"])
def _rehash_kernel(
    old_ptr,
    slots_ptr,
    state_ptr,
    old_slot_count: tl.int64,
    slot_count: tl.int64,
    shift: tl.int64,
    BLOCK: tl.constexpr,
):
    """Copy every pair; they all differ, so that a slot is taken as soon as its count word is."""
    old = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    count = tl.load(old_ptr + 4 * old + 2, mask=old < old_slot_count, other=0)
    seeking = count > 0
    question = tl.load(old_ptr + 4 * old, mask=seeking, other=0)
    outcome = tl.load(old_ptr + 4 * old + 1, mask=seeking, other=0)
    pending = tl.load(old_ptr + 4 * old + 3, mask=seeking, other=0)
    slot = tl.where(seeking, _home(question, outcome, shift), old & (slot_count - 1))  # as in phase 1
    steps_left = slot_count
    while (tl.max(seeking.to(tl.int32), 0) > 0) & (steps_left > 0):
        slot_ptr = slots_ptr + 4 * slot
        found = tl.atomic_cas(slot_ptr + 2, tl.zeros_like(count), tl.where(seeking, count, 0), sem="relaxed")
        won = seeking & (found == 0)
        tl.store(slot_ptr, question, mask=won)
        tl.store(slot_ptr + 1, outcome, mask=won)
        tl.store(slot_ptr + 3, pending, mask=won)
        seeking = seeking & ~won
        slot = tl.where(seeking, (slot + 1) & (slot_count - 1), slot)
        steps_left -= 1
    if tl.max(seeking.to(tl.int32), 0) > 0:
        tl.atomic_or(state_ptr + STATUS, LOST, sem="relaxed")


def launch_find(
    slots: Tensor,
    state: Tensor,
    question_keys: Tensor,
    outcome_keys: Tensor,
    before: Tensor | None,
    places: Tensor | None,
) -> None:
    """Phase 1 of adding flat keys; without `places` a mere lookup. `before` is not written if it is None."""
    rows, slot_count = len(outcome_keys), len(slots)
    with torch.cuda.device_of(slots):
        _find_kernel[(triton.cdiv(rows, _BLOCK),)](
            slots_ptr=slots,
            state_ptr=state,
            questions_ptr=question_keys,
            outcomes_ptr=outcome_keys,
            before_ptr=before,
            places_ptr=places,
            rows=rows,
            slot_count=slot_count,
            shift=shift_of(slot_count),
            limit=limit_of(slot_count),
            BLOCK=_BLOCK,
        )


def launch_commit(
    slots: Tensor,
    state: Tensor,
    question_keys: Tensor,
    outcome_keys: Tensor,
    places: Tensor,
    amounts: Tensor | None,
    *,
    samples: int,
    pending: bool,
) -> None:
    """Phase 2, where each question has `samples` outcomes and `amounts` are 1 if None."""
    rows = outcome_keys.numel()
    with torch.cuda.device_of(slots):
        _commit_kernel[(triton.cdiv(rows, _BLOCK),)](
            slots_ptr=slots,
            state_ptr=state,
            questions_ptr=question_keys,
            outcomes_ptr=outcome_keys,
            places_ptr=places,
            amounts_ptr=amounts,
            rows=rows,
            slot_count=len(slots),
            SAMPLES=samples,
            PENDING=pending,
            BLOCK=_BLOCK,
        )


def launch_rehash(old: Tensor, slots: Tensor, state: Tensor) -> None:
    """Copy all pairs of `old` into the zeroed `slots`."""
    with torch.cuda.device_of(slots):
        _rehash_kernel[(triton.cdiv(len(old), _BLOCK),)](
            old_ptr=old,
            slots_ptr=slots,
            state_ptr=state,
            old_slot_count=len(old),
            slot_count=len(slots),
            shift=shift_of(len(slots)),
            BLOCK=_BLOCK,
        )


def shift_of(slot_count: int) -> int:
    """Return the shift of a hash that leaves its high bits as the slot index."""
    return 65 - slot_count.bit_length()


def limit_of(slot_count: int) -> int:
    """How many pairs so many slots may hold."""
    return slot_count // 5 * 3
