"""Draws depend only on seeds, follow the probabilities, and obey the settings as `generate` does."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.rollout.sampling import draw, sample_seeds, uniforms, warper

PROMPTS = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), min_size=1, max_size=6)


@given(PROMPTS, st.integers(1, 5), st.integers(0, 2**63 - 1))
def test_every_response_has_its_own_seed(prompts: list[list[int]], n: int, seed: int) -> None:
    seeds = sample_seeds(prompts, n, seed)
    assert len(set(seeds)) == len(seeds) == n * len(prompts)
    assert all(0 <= own < 2**63 for own in seeds)
    assert not set(seeds) & set(sample_seeds(prompts, n, seed + 1))


@given(PROMPTS, st.integers(1, 5))
def test_a_question_keeps_its_seeds_in_any_batch(prompts: list[list[int]], n: int) -> None:
    seeds = sample_seeds(prompts, n, 7)
    first = prompts.index(prompts[-1])
    assert seeds[first * n : first * n + n] == sample_seeds([prompts[-1]], n, 7)
    assert sample_seeds(prompts, n + 1, 7)[:n] == seeds[:n]


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5), st.integers(1, 9))
def test_uniforms_are_a_sequence_of_each_seed(seeds: list[int], count: int) -> None:
    drawn = uniforms(seeds, count)
    assert drawn.shape == (len(seeds), count)
    assert ((drawn >= 0) & (drawn < 1)).all()
    for row, seed in enumerate(seeds):
        assert torch.equal(drawn[row], uniforms([seed], count + 3)[0, :count])


def test_the_sequence_is_that_of_splitmix64() -> None:
    """The first outputs for seed 1234567 that Vigna's C code prints."""
    known = np.array([6457827717110365317, 3203168211198807973, 9817491932198370423], dtype=np.uint64)
    expected = torch.from_numpy((known >> np.uint64(11)) * 2.0**-53)
    assert torch.equal(uniforms([1234567], 3)[0], expected)


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    logits = torch.full((3, 4), float("-inf"))
    logits[:, 1] = 0.0
    extremes = torch.tensor([0.0, 0.5, 1 - 2.0**-53], dtype=torch.float64)
    assert draw(logits, extremes, torch.arange(3)).tolist() == [1, 1, 1]


@given(st.integers(1, 400), st.integers(0, 2**32 - 1), st.sampled_from([0.1, 3.0, 30.0]))
def test_draws_invert_the_distribution_function(vocab: int, seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(20, vocab, generator=generator)
    drawn_at = torch.rand(20, generator=generator, dtype=torch.float64)
    rows = torch.randint(20, (20,), generator=generator)
    tokens = draw(logits, drawn_at, rows)
    summed = torch.nn.functional.pad(logits.double().softmax(dim=-1).cumsum(dim=-1), (1, 0))[rows]
    low, high = (summed.gather(1, tokens[:, None] + side)[:, 0] for side in (0, 1))
    assert (low - 1e-6 <= drawn_at).all()
    assert (drawn_at <= high + 1e-6).all()


def test_rare_tokens_of_a_large_vocabulary_are_not_lost() -> None:
    """In float32 the distribution function of 2**18 equal tokens would reach 1 too early or too late."""
    tokens = torch.tensor([0, 1, 131_072, 262_143])
    middle = (tokens.double() + 0.5) / 2**18
    assert torch.equal(draw(torch.zeros(1, 2**18), middle, torch.zeros(4, dtype=torch.int64)), tokens)


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.7}, {"top_k": 3}, {"top_p": 0.8}, {"temperature": 1.5, "top_k": 5, "top_p": 0.6}]
)
def test_logits_are_warped_as_generate_warps_them(settings: dict[str, float]) -> None:
    from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

    logits = torch.randn(6, 30, generator=torch.Generator().manual_seed(0))
    sampling = SamplingConfig(**settings)
    config = GenerationConfig(
        do_sample=True, temperature=sampling.temperature, top_k=max(sampling.top_k, 0), top_p=sampling.top_p
    )
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=30))
    processors = model._get_logits_processor(config)
    assert torch.equal(warper(sampling)(logits), processors(None, logits))
