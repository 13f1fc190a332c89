"""A packed row holds what responses begin with once, and its indices lead back to each response behind its prompt."""

from itertools import pairwise
from random import Random

import torch
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.grpo.config.schema import ActorConfig
from outcome_rl.grpo.model.packing import Lengths, pack
from outcome_rl.grpo.rollout.engine import Rollouts
from outcome_rl.grpo.update.microbatches import split_rows

# Questions of a batch: the length of the prompt, and the tokens of each response. Of two tokens, so that many begin
# alike; a response may be masked out whole, be the same as another, or the beginning of it.
RESPONSES = st.lists(st.lists(st.sampled_from([7, 8]), max_size=6), min_size=1, max_size=6)
QUESTIONS = st.lists(st.tuples(st.integers(1, 5), RESPONSES), min_size=1, max_size=4)


def make_rollouts(questions: list[tuple[int, list[list[int]]]]) -> Rollouts:
    """Every prompt has tokens of its own; prompts are padded on the left, responses on the right, by a token."""
    number = sum(len(responses) for _, responses in questions)
    width = max(prompt for prompt, _ in questions)
    prompt_ids, prompt_mask = torch.zeros(number, width, dtype=torch.long), torch.zeros(number, width, dtype=torch.bool)
    ids, mask = torch.full((number, 7), 7), torch.zeros(number, 7, dtype=torch.bool)
    row = 0
    for question, (prompt, responses) in enumerate(questions):
        for response in responses:
            prompt_ids[row, width - prompt :] = 1000 * (question + 1) + torch.arange(prompt)
            prompt_mask[row, width - prompt :] = True
            ids[row, : len(response)] = torch.tensor(response, dtype=torch.long)
            mask[row, : len(response)] = True
            row += 1
    return Rollouts(prompt_ids, prompt_mask, ids, mask, [""] * number)


def whole(rollouts: Rollouts, row: int) -> list[int]:
    """A response behind its prompt, without its last token."""
    prompt = rollouts.prompt_ids[row][rollouts.prompt_mask[row]]
    return [*prompt.tolist(), *rollouts.completion_ids[row][rollouts.completion_mask[row]][:-1].tolist()]


@given(QUESTIONS, st.booleans(), st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_indices_lead_back_to_the_responses(
    questions: list[tuple[int, list[list[int]]]], share: bool, padded: bool, ordered: bool, random: Random
) -> None:
    rollouts = make_rollouts(questions)
    lengths = Lengths.of(rollouts, share_prefixes=share)
    total = len(rollouts.texts)
    rows = random.sample(range(total), random.randint(1, total))
    if ordered:
        rows.sort(key=lengths.ranks.__getitem__)
    packed = pack(rollouts, lengths, rows, padded=padded)
    sequences = packed.sequences
    laid_out = packed.input_ids_N[sequences.tokens_K]
    positions = packed.position_ids_N[sequences.tokens_K]
    for place, row in enumerate(rows):
        tokens = torch.tensor(whole(rollouts, row))
        response = rollouts.completion_ids[row][rollouts.completion_mask[row]]
        start = place * sequences.max_length if padded else int(sequences.cu_seqlens[place])
        assert torch.equal(laid_out[start : start + len(tokens)], tokens)
        assert torch.equal(positions[start : start + len(tokens)], torch.arange(len(tokens)))
        own = slice(int(packed.cu_seqlens[place]), int(packed.cu_seqlens[place + 1]))
        assert torch.equal(packed.of_tokens(rollouts.completion_ids)[own], response)
        predictors = packed.input_ids_N[packed.states_M[own]]
        assert torch.equal(predictors, tokens[lengths.prompts[row] - 1 :][: len(response)])
        # The state that predicts a token has seen the tokens before it and no other: those of its own layout.
        assert (
            packed.states_M[own].tolist()
            == sequences.tokens_K[start:][lengths.prompts[row] - 1 :][: len(response)].tolist()
        )
    assert torch.equal(laid_out[sequences.places_N], packed.input_ids_N)  # a token's result comes from a place of it
    sizes = [len(whole(rollouts, row)) for row in rows]
    assert int(sequences.cu_seqlens[-1]) == sum(sizes)
    if not share:
        assert len(packed.input_ids_N) == sum(sizes)
    elif ordered:  # a token for each node of the trees, which no two beginnings share
        nodes = {(lengths.groups[row], *whole(rollouts, row)[:end]) for row in rows for end in range(1, 12)}
        assert len(packed.input_ids_N) == len(nodes)


@given(QUESTIONS, st.booleans(), st.integers(1, 5), st.integers(12, 30))
def test_micro_batches_hold_every_response_with_tokens_once(
    questions: list[tuple[int, list[list[int]]]], share: bool, most_rows: int, most_tokens: int
) -> None:
    lengths = Lengths.of(make_rollouts(questions), share_prefixes=share)
    rows = range(len(lengths.prompts))
    with_tokens = [row for row in rows if lengths.responses[row]]
    by_rows = list(split_rows(lengths, rows, ActorConfig(ppo_micro_batch_size_per_gpu=most_rows)))
    by_tokens = list(
        split_rows(lengths, rows, ActorConfig(use_dynamic_bsz=True, ppo_max_token_len_per_gpu=most_tokens))
    )
    for chosen in (by_rows, by_tokens):
        assert sorted(row for part in chosen for row in part) == with_tokens
        order = [lengths.groups[row] for part in chosen for row in part]
        assert sum(a != b for a, b in pairwise(order)) == max(len(set(order)) - 1, 0)  # groups stay together
    assert all(len(part) <= most_rows for part in by_rows)
    assert len(by_rows) == -(-len(with_tokens) // most_rows)

    def tokens(part: list[int]) -> int:
        prompts = {lengths.groups[row]: lengths.prompts[row] for row in part}
        return sum(prompts.values()) + sum(lengths.responses[row] for row in part)

    assert all(tokens(part) <= most_tokens for part in by_tokens)  # 12 holds the longest
    for part, following in pairwise(by_tokens):
        assert tokens([*part, following[0]]) > most_tokens  # as full as the order allows


def test_the_longest_come_first() -> None:
    lengths = Lengths([2, 2, 2, 2], [1, 3, 9, 2], groups=[1, 1, 2, 2], ranks=[0, 1, 2, 3], common=[0, 2, 0, 2])
    actor = ActorConfig(ppo_micro_batch_size_per_gpu=3)
    assert list(split_rows(lengths, range(4), actor)) == [[2, 3, 0], [1]]
    assert list(split_rows(lengths, [1, 0], actor)) == [[0, 1]]


def test_prompts_are_the_same_only_if_all_of_them_is() -> None:
    rollouts = make_rollouts([(2, [[7], [7]]), (2, [[7]])])
    assert Lengths.of(rollouts, share_prefixes=True).groups == [1, 1, 2]
    assert Lengths.of(rollouts, share_prefixes=False).groups == [1, 2, 3]
    padded_alike = rollouts._replace(  # pad tokens that are like a token, and a prompt that is shorter by it
        prompt_ids=torch.full((3, 2), 7), prompt_mask=torch.tensor([[True, True], [False, True], [False, True]])
    )
    assert Lengths.of(padded_alike, share_prefixes=True).groups == [1, 2, 2]
