"""A packed row holds shared prefixes once, and its indices lead back to each response behind its prompt."""

from itertools import pairwise
from random import Random
from typing import get_args

import torch
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.grpo.model.packing import Layout, PackedBatch, PackingPlan, RaggedSequences, pack
from outcome_rl.grpo.types import Rollout
from outcome_rl.grpo.update.microbatches import split_rows

# Questions of a batch: the length of the template that a prompt begins with, the length of its rest, and the tokens of
# each response. Of two tokens, so that many share a prefix; a response may be empty, be the same as another, or the
# beginning of it.
RESPONSES = st.lists(st.lists(st.sampled_from([7, 8]), max_size=6), min_size=1, max_size=6)
Questions = list[tuple[int, int, list[list[int]]]]
QUESTIONS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), RESPONSES), min_size=1, max_size=4)


def make_rollouts(questions: Questions) -> list[Rollout]:
    """The rest of every prompt has tokens of its own."""
    rollouts = []
    for question, (template, length, responses) in enumerate(questions):
        prompt = [*range(template), *(1000 * (question + 1) + position for position in range(length))]
        rollouts += [Rollout(prompt, response, "") for response in responses]
    return rollouts


def sequence(rollout: Rollout) -> list[int]:
    """A response behind its prompt, without its last token."""
    return [*rollout.prompt_ids, *rollout.token_ids[:-1]]


def contexts(packed: PackedBatch) -> list[list[int]]:
    """For each slot of a query in attention: the tokens that it sees, itself the last."""
    found = []
    if isinstance(packed.attention, list):
        for part in packed.attention:
            first = part.keys_PL.shape[1] - part.queries_PQ.shape[1]
            for queries, keys in zip(part.queries_PQ.tolist(), part.keys_PL.tolist(), strict=True):
                found += [[*keys[: first + at], query] for at, query in enumerate(queries)]
        return found
    ragged = packed.attention
    token = 0
    for number, (begin, end) in enumerate(pairwise(ragged.key_bounds.tolist())):
        keys = ragged.keys_K[begin:end].tolist()
        queries = int(ragged.query_bounds.diff()[number])
        for at in range(len(keys) - queries, len(keys)):
            found.append([*keys[:at], token])
            token += 1
    assert ragged.max_queries == ragged.query_bounds.diff().max()
    assert ragged.max_length == ragged.key_bounds.diff().max()
    return found


@given(QUESTIONS, st.booleans(), st.sampled_from(get_args(Layout)), st.booleans(), st.randoms(use_true_random=False))
def test_indices_lead_back_to_the_responses(
    questions: Questions, share: bool, layout: Layout, ordered: bool, random: Random
) -> None:
    rollouts = make_rollouts(questions)
    plan = PackingPlan.of(rollouts, share_prefixes=share)
    total = len(rollouts)
    rows = random.sample(range(total), random.randint(1, total))
    if ordered:
        rows.sort(key=plan.ranks.__getitem__)
    packed = pack(plan, rows, layout)
    seen = [contexts(packed)[slot] for slot in packed.slots_U.tolist()]
    assert [tokens[-1] for tokens in seen] == list(range(len(packed.input_ids_U)))  # each is the query of its slot
    assert [len(tokens) - 1 for tokens in seen] == packed.position_ids_U.tolist()
    for number, row in enumerate(rows):
        tokens = sequence(rollouts[row])
        own = slice(int(packed.response_bounds[number]), int(packed.response_bounds[number + 1]))
        assert packed.labels_M[own].tolist() == list(rollouts[row].token_ids)
        # The state that predicts a token has seen the tokens before it and no other, and so have those that it sees.
        for position, state in enumerate(packed.states_M[own].tolist(), start=plan.prompts[row]):
            assert packed.input_ids_U[seen[state]].tolist() == tokens[:position]
            assert all(seen[token] == seen[state][: at + 1] for at, token in enumerate(seen[state]))
    sizes = [len(sequence(rollouts[row])) for row in rows]
    assert packed.lengths_S.tolist() == sizes
    if not share:
        assert len(packed.input_ids_U) == sum(sizes)
    elif ordered:  # a token for each node of the tree of all sequences
        nodes = {tuple(sequence(rollouts[row])[:end]) for row in rows for end in range(1, 15)}
        assert len(packed.input_ids_U) == len(nodes)


@given(QUESTIONS, st.booleans(), st.integers(15, 30))
def test_micro_batches_hold_every_response_with_tokens_once(
    questions: Questions, share: bool, most_tokens: int
) -> None:
    plan = PackingPlan.of(make_rollouts(questions), share_prefixes=share)
    rows = range(len(plan.prompts))
    with_tokens = [row for row in rows if plan.responses[row]]
    chosen = list(split_rows(plan, rows, most_tokens))
    assert sorted(row for part in chosen for row in part) == with_tokens
    order = [plan.groups[row] for part in chosen for row in part]
    assert sum(a != b for a, b in pairwise(order)) == max(len(set(order)) - 1, 0)  # groups stay together

    def tokens(part: list[int]) -> int:
        prompts = {plan.groups[row]: plan.prompts[row] for row in part}
        return sum(prompts.values()) + sum(plan.responses[row] for row in part)

    assert all(tokens(part) <= most_tokens for part in chosen)  # 15 holds the longest
    for part, following in pairwise(chosen):
        assert tokens([*part, following[0]]) > most_tokens  # as full as the order allows


def test_the_longest_come_first() -> None:
    rollouts = make_rollouts([(0, 2, [[7], [8] * 3]), (0, 2, [[7] * 9, [8] * 2])])
    plan = PackingPlan.of(rollouts, share_prefixes=True)
    assert list(split_rows(plan, range(4), 16)) == [[2, 3, 0], [1]]
    assert list(split_rows(plan, [1, 0], 16)) == [[0, 1]]


def test_groups_have_equal_prompts() -> None:
    rollouts = make_rollouts([(0, 2, [[7], [7]]), (0, 2, [[7]])])
    assert PackingPlan.of(rollouts, share_prefixes=True).groups == [0, 0, 1]
    assert PackingPlan.of(rollouts, share_prefixes=False).groups == [0, 1, 2]
    shorter = [Rollout([7, 7], [7], ""), Rollout([7], [7], ""), Rollout([7], [7], "")]
    assert PackingPlan.of(shorter, share_prefixes=True).groups == [0, 1, 1]


def test_a_shared_prompt_is_attended_from_once() -> None:
    rollouts = make_rollouts([(0, 9, [[first, 8, 8] for first in (1, 2, 3, 4)])])
    plan = PackingPlan.of(rollouts, share_prefixes=True)
    attention = pack(plan, [0, 1, 2, 3], "cut").attention
    assert isinstance(attention, list)
    assert [part.queries_PQ.shape for part in attention] == [(1, 11), (3, 2)]
    assert [part.keys_PL.shape for part in attention] == [(1, 11), (3, 11)]
    (padded,) = pack(plan, [0, 1, 2, 3], "padded").attention
    assert torch.equal(padded.queries_PQ, padded.keys_PL)  # so that attention needs no mask
    ragged = pack(plan, [0, 1, 2, 3], "ragged").attention
    assert isinstance(ragged, RaggedSequences)
    assert ragged.query_bounds.tolist() == [0, 11, 13, 15, 17]
