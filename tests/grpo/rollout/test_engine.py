"""Samples depend on prompts, settings and seed alone, and masks mark exactly what was sampled."""

import pytest
import torch

from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.engine import Rollouts
from outcome_rl.grpo.rollout.transformers_engine import TransformersEngine

TEXTS = ("D07 17 @ 5 # 3 =>", "D01", "D12 39 ^ 9 ! 3 =>")
N = 6


@pytest.fixture(scope="module")
def prompts(shared_policy: Policy) -> list[list[int]]:
    ids: list[list[int]] = shared_policy.tokenizer(list(TEXTS))["input_ids"]
    return ids


@pytest.fixture(scope="module")
def rollouts(shared_policy: Policy, prompts: list[list[int]]) -> Rollouts:
    return TransformersEngine(shared_policy, 64).generate(prompts, SamplingConfig(n=N), 16, seed=1)


def test_prompts_are_padded_on_the_left(rollouts: Rollouts, prompts: list[list[int]]) -> None:
    assert rollouts.prompt_ids.shape == (3 * N, 8)
    for row, (ids, mask) in enumerate(zip(rollouts.prompt_ids, rollouts.prompt_mask, strict=True)):
        assert ids[mask].tolist() == prompts[row // N]
        assert mask.tolist() == sorted(mask.tolist())


def test_masks_end_with_the_end_token(rollouts: Rollouts, shared_policy: Policy) -> None:
    end, pad = shared_policy.tokenizer.eos_token_id, shared_policy.tokenizer.pad_token_id
    assert end != pad
    for ids, mask in zip(rollouts.completion_ids.tolist(), rollouts.completion_mask.tolist(), strict=True):
        length = ids.index(end) + 1 if end in ids else len(ids)
        assert mask == [True] * length + [False] * (len(ids) - length)
        assert set(ids[length:]) <= {pad}
    assert rollouts.num_tokens == int(rollouts.completion_mask.sum())


def test_texts_are_the_ids_without_the_end(rollouts: Rollouts, shared_policy: Policy) -> None:
    for ids, mask, text in zip(rollouts.completion_ids, rollouts.completion_mask, rollouts.texts, strict=True):
        assert shared_policy.tokenizer.decode(ids[mask]).removesuffix("<eos>").strip() == text


def test_the_pad_token_may_be_the_end_token(policy: Policy, prompts: list[list[int]], rollouts: Rollouts) -> None:
    policy.tokenizer.pad_token = policy.tokenizer.eos_token
    same = TransformersEngine(policy, 64).generate(prompts, SamplingConfig(n=N), 16, seed=1)
    assert torch.equal(same.completion_mask, rollouts.completion_mask)
    assert same.texts == rollouts.texts


def test_responses_are_cut_at_the_limit(shared_policy: Policy, prompts: list[list[int]]) -> None:
    cut = TransformersEngine(shared_policy, 64).generate(prompts, SamplingConfig(n=2), 5, seed=1)
    assert cut.completion_ids.shape == (6, 5)
    assert cut.completion_mask.all()


def test_the_seed_decides_and_nothing_else(shared_policy: Policy, prompts: list[list[int]], rollouts: Rollouts) -> None:
    engine = TransformersEngine(shared_policy, 64)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    same = engine.generate(prompts, SamplingConfig(n=N), 16, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    again = engine.generate(prompts, SamplingConfig(n=N), 16, seed=1)
    other = engine.generate(prompts, SamplingConfig(n=N), 16, seed=2)
    assert torch.equal(same.completion_ids, rollouts.completion_ids)
    assert torch.equal(again.completion_ids, rollouts.completion_ids)
    assert other.texts != rollouts.texts
    assert len(set(rollouts.texts[:N])) > 1  # the samples of one prompt are independent


def test_parts_of_unlike_length_are_joined(shared_policy: Policy, prompts: list[list[int]]) -> None:
    rollouts = TransformersEngine(shared_policy, 2).generate(prompts, SamplingConfig(n=3), 16, seed=1)
    assert len(rollouts.texts) == len(rollouts.completion_ids) == 9
    lengths = rollouts.completion_mask.sum(dim=1)
    assert rollouts.completion_ids.shape[1] == lengths.max()
    assert lengths.min() < lengths.max()


def test_the_models_own_generation_settings_do_not_leak_in(
    policy: Policy, prompts: list[list[int]], rollouts: Rollouts
) -> None:
    """A repetition penalty would sample from another policy than the one whose probabilities the loss takes."""
    own = policy.model.generation_config
    own.update(repetition_penalty=5.0, min_p=0.5, temperature=9.0, top_k=1, no_repeat_ngram_size=1)
    same = TransformersEngine(policy, 64).generate(prompts, SamplingConfig(n=N), 16, seed=1)
    assert same.texts == rollouts.texts
    assert policy.model.generation_config is own
    assert own.repetition_penalty == 5.0  # and they are still there to be saved with the model


@pytest.mark.parametrize("setting", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}])
def test_sampling_settings_are_obeyed(
    setting: dict[str, float], shared_policy: Policy, prompts: list[list[int]], rollouts: Rollouts
) -> None:
    greedy = TransformersEngine(shared_policy, 64).generate(prompts, SamplingConfig(n=N, **setting), 16, seed=1)  # type: ignore[arg-type]
    for group in range(3):
        assert len(set(greedy.texts[group * N : group * N + N])) == 1


def test_samples_follow_the_policys_probabilities(shared_policy: Policy, prompts: list[list[int]]) -> None:
    n = 2000
    rollouts = TransformersEngine(shared_policy, n).generate(
        prompts[1:2], SamplingConfig(n=n, temperature=1.5), 1, seed=0
    )
    observed = torch.bincount(rollouts.completion_ids[:, 0], minlength=shared_policy.head_weight.shape[0]) / n
    with torch.no_grad():
        expected = torch.softmax(shared_policy.model(torch.tensor(prompts[1:2])).logits[0, -1] / 1.5, dim=-1)
    # Half the sum of absolute differences of two distributions; its expectation here is about 0.04.
    assert 0.5 * (observed - expected).abs().sum() < 0.08


@pytest.mark.parametrize("with_logps", [True, False])
def test_joined_and_taken_apart_they_are_the_same(
    with_logps: bool, shared_policy: Policy, prompts: list[list[int]]
) -> None:
    completions = [[5], [6, 7, 8], [9, 10]]
    logps = [[-0.5], [-1.0, -2.0, -3.0], [-0.25, -4.0]] if with_logps else None

    def assemble(rows: slice) -> Rollouts:
        return Rollouts.assemble(shared_policy, prompts[rows], completions[rows], logps[rows] if logps else None)

    whole = assemble(slice(0, 3))
    joined = Rollouts.join([assemble(slice(0, 1)), assemble(slice(1, 3))])
    for rows in (slice(0, 3), slice(1, 2)):
        some, expected = joined.take(range(3)[rows]), assemble(rows)
        assert some.texts == expected.texts
        assert (some.logps is None) == (expected.logps is None)
        for name in ("prompt", "completion"):
            pairs = zip(unpadded(some, name), unpadded(expected, name), strict=True)
            assert all(mine == wanted for mine, wanted in pairs)
    assert torch.equal(joined.completion_mask, whole.completion_mask)


def unpadded(rollouts: Rollouts, part: str) -> list[list[list[float]]]:
    """Ids, and of completions log-probabilities, of each response, those of the mask."""
    mask, columns = getattr(rollouts, f"{part}_mask"), [getattr(rollouts, f"{part}_ids")]
    if part == "completion" and rollouts.logps is not None:
        columns.append(rollouts.logps)
    return [[column[row][mask[row]].tolist() for column in columns] for row in range(len(mask))]
