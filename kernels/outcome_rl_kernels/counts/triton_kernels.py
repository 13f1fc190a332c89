"""Triton kernels that probe, update and rehash the count table of a GPU; `triton` holds the table.

Layout: int64 slots (S, 4) of {question, outcome, count, successes}, 32 bytes, one sector, as in cpu.py; S
is a power of two, a key's home is the high bits of its hash, probing is linear, and at most 0.3 S slots are taken. A
question has a slot too, {question, different answers, samples, smallest int64 + successes}: its last word is negative.

A batch has N outcomes, equally many for each of Q questions, and N + Q rows: first the outcomes, then the questions.

A batch is counted in two wait-free phases, a launch each:

1. Find or claim. A slot's `count` word is 0 (empty), positive (holds the pair next to it since an earlier launch) or
   -1 - r: claimed in this launch by row r of the batch. A row that comes to an empty slot claims it by
   compare-and-swap. A row that comes to a claimed slot reads the claimant's key **from the batch**, not from the slot.
2. Commit. Every row adds its amount to its slot's count; the claimant adds 1 + r more, which cancels its claim, and
   writes the key. Rows of outcomes add successes, and new answers, to the slot of their question too.

On an H200 a step of 2,048 outcomes takes 11 us; with phase 2 in the first launch, by the program that arrives last, it
took 24.

No interleaving of programs can go wrong:
- In phase 1 a count word changes at most once, from 0 to a claim, and no other word of a slot changes. These are read
  only where nothing writes them: positive words stand next to keys of earlier launches, claims point into the batch. So
  nothing that is read can be half written, no order between memory accesses is needed, and no program waits.
- A plain load of the count word may be stale only by showing 0, and then the compare-and-swap returns the truth.
- Rows of one key walk the same slots. No slot on the way becomes empty, so all of them stop at the same one: the first
  that holds their key, or the first empty one, which exactly one of them wins and the others find won by their own key.
- The count before the batch is the positive word, or 0 for a claim: no row can see another's amount.
- In phase 2 keys are not read, only the claimant of a slot writes its key, and additions commute: counts do not
  depend on the order, though slots of new pairs do.
- No value of a key is reserved: a slot is marked by its count.
- A call that is stopped between the phases cancels its claims.

A walk ends after S slots at the latest. It always ends earlier, because at most 0.3 S slots are ever taken: the host
makes room before a launch. It uses an upper bound of the size that needs no synchronisation (the size it last read, and
all rows since). A launch without room, such as the replay of a CUDA graph, counts nothing and sets a bit in `state`.
The next call that synchronises anyway turns this bit into an error.
"""

import triton
import triton.language as tl

# Words of `state`, int64 on the device.
SIZE = tl.constexpr(0)  # slots of pairs and of questions
STATUS = tl.constexpr(1)  # the bits below; they stay set
PAIRS = tl.constexpr(2)
NO_ROOM = tl.constexpr(1)  # a launch was not counted
LOST = tl.constexpr(2)  # a walk found neither its key nor an empty slot: memory was overwritten

# Finaliser of SplitMix64, as in splitmix.py: Triton takes 64-bit constants as signed numbers.
_GOLDEN_RATIO = tl.constexpr(0x9E3779B97F4A7C15 - 2**64)
_QUESTION = tl.constexpr(-(2**63))  # initial value of the last word of a question's slot
_MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9 - 2**64)
_MIX_2 = tl.constexpr(0x94D049BB133111EB - 2**64)


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
def _key(questions_ptr, outcomes_ptr, row, valid, outcomes, SAMPLES: tl.constexpr):
    """Return question, outcome, and whether the row belongs to the question itself, whose outcome is 0."""
    of_question = row >= outcomes
    question_row = tl.where(of_question, row - outcomes, row // SAMPLES)
    question = tl.load(questions_ptr + question_row, mask=valid, other=0)
    return question, tl.load(outcomes_ptr + row, mask=valid & ~of_question, other=0), of_question


@triton.jit(do_not_specialize=["rows", "outcomes", "slot_count", "shift", "limit"])
def find_kernel(
    slots_ptr,
    state_ptr,
    questions_ptr,
    outcomes_ptr,
    before_ptr,  # None: not written
    history_ptr,  # None: not written
    places_ptr,  # None: only a lookup
    rows: tl.int64,  # of the batch
    outcomes: tl.int64,  # of the batch
    slot_count: tl.int64,
    shift: tl.int64,
    limit: tl.int64,
    SAMPLES: tl.constexpr,  # outcomes per question
    BLOCK: tl.constexpr,
):
    """Phase 1: write the counts of each row before the batch, and the index at which phase 2 adds.

    That is the row's slot, or -1 - slot if the row claimed it, or `slot_count` if nothing is added.
    """
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = row < rows
    if places_ptr is not None:
        # The same for all programs of a launch, as the size changes in phase 2 only.
        has_room = tl.load(state_ptr + SIZE) + rows <= limit
        if not has_room:
            tl.atomic_or(state_ptr + STATUS, NO_ROOM, sem="relaxed")
    question, outcome, of_question = _key(questions_ptr, outcomes_ptr, row, valid, outcomes, SAMPLES)
    # Padding rows take part in compare-and-swaps, each on a different slot; otherwise all would queue for one word.
    slot = tl.where(valid, _home(question, outcome, shift), row & (slot_count - 1))
    word = tl.zeros_like(slot)
    seeking = valid
    steps_left = slot_count
    while (tl.max(seeking.to(tl.int32), 0) > 0) & (steps_left > 0):
        count_ptr = slots_ptr + 4 * slot + 2
        word = tl.where(seeking, tl.load(count_ptr, mask=seeking, other=0), word)
        if places_ptr is not None:
            claiming = seeking & (word == 0) & has_room
            if tl.max(claiming.to(tl.int32), 0) > 0:
                # Compare-and-swap takes no mask: for the other rows it exchanges 0 for 0, which changes nothing.
                found = tl.atomic_cas(count_ptr, tl.zeros_like(word), tl.where(claiming, -1 - row, 0), sem="relaxed")
                word = tl.where(claiming, tl.where(found == 0, -1 - row, found), word)
        taken = seeking & (word > 0)
        claimed = seeking & (word < 0)
        its_question, its_outcome, is_question = _key(
            questions_ptr, outcomes_ptr, -1 - word, claimed, outcomes, SAMPLES
        )
        its_question = tl.where(taken, tl.load(slots_ptr + 4 * slot, mask=taken, other=0), its_question)
        here = seeking & (word != 0) & (its_question == question)
        its_outcome = tl.where(taken, tl.load(slots_ptr + 4 * slot + 1, mask=taken & here, other=0), its_outcome)
        is_question = tl.where(taken, tl.load(slots_ptr + 4 * slot + 3, mask=taken & here, other=0) < 0, is_question)
        here = here & (is_question == of_question) & (of_question | (its_outcome == outcome))
        seeking = seeking & (word != 0) & ~here
        slot = tl.where(seeking, (slot + 1) & (slot_count - 1), slot)
        steps_left -= 1
    if tl.max(seeking.to(tl.int32), 0) > 0:
        tl.atomic_or(state_ptr + STATUS, LOST, sem="relaxed")
    before = tl.maximum(word, 0)
    if before_ptr is not None:
        tl.store(before_ptr + row, before, mask=valid & ~of_question)
    if history_ptr is not None:
        own = valid & of_question
        known = own & (word > 0)
        questions = rows - outcomes
        of_slot_ptr = history_ptr + (row - outcomes)
        successes = tl.load(slots_ptr + 4 * slot + 3, mask=known, other=_QUESTION) - _QUESTION
        tl.store(of_slot_ptr, before, mask=own)
        tl.store(of_slot_ptr + questions, successes, mask=own)
        tl.store(of_slot_ptr + 2 * questions, tl.load(slots_ptr + 4 * slot + 1, mask=known, other=0), mask=own)
    if places_ptr is not None:
        place = tl.where(word == -1 - row, -1 - slot, slot)
        tl.store(places_ptr + row, tl.where(has_room & ~seeking, place, slot_count), mask=valid)


@triton.jit(do_not_specialize=["rows", "outcomes", "slot_count"])
def commit_kernel(
    slots_ptr,
    state_ptr,
    questions_ptr,
    outcomes_ptr,
    correct_ptr,  # None: no sample is correct
    places_ptr,
    amounts_ptr,  # None: 1 each; else samples and correct samples of each outcome, two columns
    rows: tl.int64,
    outcomes: tl.int64,
    slot_count: tl.int64,
    SAMPLES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Phase 2: add the amounts, and write the keys of claimed slots."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = row < rows
    question, outcome, of_question = _key(questions_ptr, outcomes_ptr, row, valid, outcomes, SAMPLES)
    place = tl.load(places_ptr + row, mask=valid, other=0)
    valid = valid & (place != slot_count)
    claimed = valid & (place < 0)
    slot_ptr = slots_ptr + 4 * tl.where(place < 0, -1 - place, place)
    of_outcome = valid & ~of_question
    # The question's row counts the samples of its outcomes; correct samples and new answers are added one by one.
    amount = tl.where(of_question, SAMPLES, 1).to(tl.int64)
    successes = tl.zeros_like(row)
    if amounts_ptr is not None:
        amount = tl.load(amounts_ptr + tl.where(of_question, row - outcomes, row), mask=valid, other=0)
        successes = tl.load(amounts_ptr + outcomes + row, mask=of_outcome, other=0)
    if correct_ptr is not None:
        successes = (tl.load(correct_ptr + row, mask=of_outcome, other=0) != 0).to(tl.int64)
    tl.atomic_add(slot_ptr + 2, tl.where(claimed, amount + (1 + row), amount), mask=valid, sem="relaxed")
    tl.atomic_add(slot_ptr + 3, successes, mask=of_outcome & (successes != 0), sem="relaxed")
    own_place = tl.load(places_ptr + outcomes + row // SAMPLES, mask=of_outcome, other=0)
    own_slot_ptr = slots_ptr + 4 * tl.where(own_place < 0, -1 - own_place, own_place)
    tl.atomic_add(own_slot_ptr + 3, successes, mask=of_outcome & (successes != 0), sem="relaxed")
    tl.atomic_add(own_slot_ptr + 1, 1, mask=of_outcome & claimed & (outcome != 0), sem="relaxed")
    tl.store(slot_ptr, question, mask=claimed)
    tl.store(slot_ptr + 1, outcome, mask=claimed & of_outcome)
    tl.atomic_add(slot_ptr + 3, _QUESTION, mask=claimed & of_question, sem="relaxed")
    tl.atomic_add(state_ptr + SIZE, tl.sum(claimed.to(tl.int64), 0), sem="relaxed")
    tl.atomic_add(state_ptr + PAIRS, tl.sum((claimed & of_outcome).to(tl.int64), 0), sem="relaxed")


@triton.jit(do_not_specialize=["old_slot_count", "slot_count", "shift"])
def rehash_kernel(
    old_ptr,
    slots_ptr,
    state_ptr,
    old_slot_count: tl.int64,
    slot_count: tl.int64,
    shift: tl.int64,
    BLOCK: tl.constexpr,
):
    """Copy every slot; their keys all differ, so that a slot is taken as soon as its count word is."""
    old = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    count = tl.load(old_ptr + 4 * old + 2, mask=old < old_slot_count, other=0)
    seeking = count > 0
    question = tl.load(old_ptr + 4 * old, mask=seeking, other=0)
    outcome = tl.load(old_ptr + 4 * old + 1, mask=seeking, other=0)
    successes = tl.load(old_ptr + 4 * old + 3, mask=seeking, other=0)
    home = _home(question, tl.where(successes < 0, 0, outcome), shift)
    slot = tl.where(seeking, home, old & (slot_count - 1))  # as in phase 1
    steps_left = slot_count
    while (tl.max(seeking.to(tl.int32), 0) > 0) & (steps_left > 0):
        slot_ptr = slots_ptr + 4 * slot
        found = tl.atomic_cas(slot_ptr + 2, tl.zeros_like(count), tl.where(seeking, count, 0), sem="relaxed")
        won = seeking & (found == 0)
        tl.store(slot_ptr, question, mask=won)
        tl.store(slot_ptr + 1, outcome, mask=won)
        tl.store(slot_ptr + 3, successes, mask=won)
        seeking = seeking & ~won
        slot = tl.where(seeking, (slot + 1) & (slot_count - 1), slot)
        steps_left -= 1
    if tl.max(seeking.to(tl.int32), 0) > 0:
        tl.atomic_or(state_ptr + STATUS, LOST, sem="relaxed")
