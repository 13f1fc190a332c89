"""Head, end tokens and samples of a model are the model's own, whatever its architecture does."""

import logging
from typing import Any

import pytest
import torch
from tiny_models import SIZES, with_visible_head
from torch import nn
from transformers import (
    AutoTokenizer,
    CohereConfig,
    FalconH1Config,
    Gemma2Config,
    GenerationConfig,
    GPT2Config,
    GraniteConfig,
    LlamaConfig,
    MiniCPM3Config,
    PhiConfig,
    Qwen2Config,
    RwkvConfig,
    RwkvForCausalLM,
)

from outcome_rl import linear_logprobs, linear_policy_loss, policy_loss
from outcome_rl.causal_lm import Samples, end_token_ids, read_head, sample, without_end
from outcome_rl.toy import policy_dir

GROUPED = {**SIZES, "num_key_value_heads": 2}
CAP = 0.5  # random weights of these sizes have logits near 0, where a usual cap would be invisible
FAMILIES: dict[str, tuple[Any, tuple[float | None, float], bool]] = {  # configuration, cap and scale, bias
    "llama": (LlamaConfig(**GROUPED, tie_word_embeddings=False), (None, 1.0), False),
    "llama, tied": (LlamaConfig(**GROUPED, tie_word_embeddings=True), (None, 1.0), False),
    "qwen2": (Qwen2Config(**GROUPED), (None, 1.0), False),
    "gpt2": (GPT2Config(vocab_size=80, n_embd=16, n_layer=1, n_head=2, eos_token_id=2), (None, 1.0), False),
    "phi": (PhiConfig(**GROUPED), (None, 1.0), True),
    "gemma2": (Gemma2Config(**GROUPED, head_dim=8, final_logit_softcapping=CAP), (CAP, 1.0), False),
    "gemma2, no cap": (Gemma2Config(**GROUPED, head_dim=8, final_logit_softcapping=None), (None, 1.0), False),
    "cohere": (CohereConfig(**GROUPED, logit_scale=0.0625), (None, 0.0625), False),
    "granite": (GraniteConfig(**GROUPED, logits_scaling=0.3), (None, 1 / 0.3), False),
    "falcon-h1": (
        FalconH1Config(**GROUPED, lm_head_multiplier=2.5, mamba_d_ssm=16, mamba_n_heads=2, mamba_d_head=8),
        (None, 2.5),
        False,
    ),
    "minicpm3": (
        MiniCPM3Config(**GROUPED, q_lora_rank=8, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=8),
        None,
        False,
    ),
}


def tiny(name: str) -> Any:
    return with_visible_head(FAMILIES[name][0]).eval()


@pytest.mark.parametrize("name", FAMILIES)
def test_the_head_is_the_models(name: str) -> None:
    """Its logits; and values and gradients of log-probabilities and loss, against autograd through the model itself."""
    model, (_, shape, has_bias) = tiny(name), FAMILIES[name]
    head = read_head(model)
    assert (head.bias is not None) == has_bias
    if shape is not None:
        assert head.softcap == shape[0]
        assert head.scale == pytest.approx(shape[1], rel=1e-6)
    ids = torch.randint(3, 80, (2, 9), generator=torch.Generator().manual_seed(0))
    labels, mask = ids[:, 1:], torch.ones(2, 8, dtype=torch.bool)
    advantages, old = torch.tensor([1.0, -0.7]), torch.full((2, 8), -4.0)
    temperature, parameters = 0.7, [*model.parameters()]

    def gradients(loss: Any) -> list[torch.Tensor | None]:
        return [*torch.autograd.grad(loss, parameters, allow_unused=True)]

    logits = model(ids, use_cache=False).logits[:, :-1]
    expected = (logits / temperature).log_softmax(-1).gather(2, labels[..., None])[..., 0]
    settings = {"old_logps": old, "entropy_coef": 0.1, "epsilon_high": 5.0}
    theirs = policy_loss(logits, labels, advantages, mask, temperature=temperature, impl="reference", **settings)
    wanted = gradients(theirs.loss)
    hidden = model.get_decoder()(ids, use_cache=False).last_hidden_state[:, :-1]
    torch.testing.assert_close(head.logits(hidden), logits, rtol=1e-5, atol=1e-5)
    options = head.options(temperature)
    logps, _ = linear_logprobs(hidden, head.weight, labels, **options)
    torch.testing.assert_close(logps, expected, rtol=1e-5, atol=1e-5)
    ours = linear_policy_loss(hidden, head.weight, labels, advantages, mask, **options, **settings)
    torch.testing.assert_close(ours.loss, theirs.loss, rtol=1e-5, atol=1e-6)
    for one, other in zip(gradients(ours.loss), wanted, strict=True):
        if other is None or one is None:
            assert one is other
        else:
            assert (one - other).norm() <= 1e-4 * other.norm() + 1e-7


@pytest.mark.parametrize("name", ["gemma2", "cohere", "phi"])
def test_a_head_in_bfloat16_has_the_same_shape(name: str) -> None:
    exact, rounded = read_head(tiny(name)), read_head(tiny(name).bfloat16())
    assert (rounded.softcap, rounded.scale) == (exact.softcap, exact.scale)


def test_a_head_is_read_without_dropout() -> None:
    """Two passes would differ by it; afterwards each module is in its mode again."""
    model = tiny("gpt2")
    model.transformer.h.train()
    modes = {name: module.training for name, module in model.named_modules()}
    assert read_head(model)[1:] == (None, 1.0)
    assert {name: module.training for name, module in model.named_modules()} == modes


class Changed(nn.Module):
    """A model whose forward pass changes the logits once more."""

    def __init__(self, model: Any, change: Any) -> None:
        super().__init__()
        self.model, self.change = model, change

    def forward(self, **inputs: Any) -> Any:
        output = self.model(**inputs)
        output.logits = self.change(output.logits)
        return output

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name in ("model", "_modules") else getattr(self.model, name)


@pytest.mark.parametrize(
    "change",
    [lambda z: z + 1, lambda z: z.clamp(max=30), lambda z: -z, lambda z: z.relu(), lambda z: z[..., :-1]],
    ids=["shifted", "clipped", "negated", "relu", "cut"],
)
def test_other_changes_of_the_logits_are_refused(change: Any) -> None:
    with pytest.raises(ValueError, match=r"lm_head .*policy_loss"):
        read_head(Changed(tiny("llama"), change))


def test_a_model_without_a_head_is_refused() -> None:
    for model, name in ((tiny("llama").model, "LlamaModel"), ("gpt2", "str")):
        with pytest.raises(ValueError, match=f"{name} has no lm_head"):
            read_head(model)


def test_a_model_without_hidden_states_is_refused() -> None:
    """Its `get_decoder` returns the model itself."""
    model = tiny("llama")
    model.get_decoder = lambda: model
    with pytest.raises(ValueError, match=r"hidden states before it.*policy_loss"):
        read_head(model)


def test_a_model_whose_state_passes_through_padding_is_not_sampled_from_another_distribution(tokenizer: Any) -> None:
    """Hidden states of what else sampled it are right nevertheless."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 80, "hidden_size": 16, "attention_hidden_size": 16, "num_hidden_layers": 2}
    model = RwkvForCausalLM(RwkvConfig(**sizes)).eval()
    with pytest.raises(ValueError, match=r"RwkvForCausalLM .* vLLM"):
        sample(model, tokenizer, [[5, 6, 7], [8]], max_new_tokens=2)
    ids = torch.tensor([[5, 6, 7, 8, 9], [0, 0, 4, 3, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 0]])
    hidden = Samples(ids, mask, ids[:, 3:], mask[:, 3:].bool(), ["", ""]).hidden(model)
    for found, alone in ((hidden[0], [5, 6, 7, 8]), (hidden[1, :1], [4])):
        true = model.rwkv(torch.tensor([alone]), use_cache=False).last_hidden_state[0]
        torch.testing.assert_close(found, true[-len(found) :])


def test_tokens_that_the_model_lacks_are_refused(tokenizer: Any) -> None:
    model = tiny("llama")
    with pytest.raises(ValueError, match=r"token 80, .* 80 rows"):
        sample(model, tokenizer, [[5], [80]], max_new_tokens=2)


@pytest.mark.parametrize("prompts", ["text", ["text"], [1, 2, 3], [], [[1], []]])
def test_prompts_that_are_no_lists_of_token_ids_are_refused(prompts: Any) -> None:
    with pytest.raises(TypeError, match=r"prompts must be lists of token ids.*tokenizer\(texts\)"):
        sample(tiny("llama"), None, prompts, max_new_tokens=2)


def test_adapters_in_the_head_are_refused() -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(tiny("llama"), peft.LoraConfig(r=2, target_modules=["lm_head"]))
    with pytest.raises(ValueError, match="adapters in its lm_head"):
        read_head(model)
    model = peft.get_peft_model(tiny("gemma2"), peft.LoraConfig(r=2, target_modules=["q_proj"]))
    assert read_head(model).softcap == CAP
    whole = peft.get_peft_model(tiny("gemma2"), peft.LoraConfig(target_modules=["q_proj"], modules_to_save=["lm_head"]))
    head = read_head(whole)
    assert head.softcap == CAP
    assert head.weight.requires_grad
    assert head.weight is whole.get_output_embeddings().modules_to_save["default"].weight


@pytest.fixture
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(policy_dir())


def test_samples_are_of_the_policy_itself(tokenizer: Any) -> None:
    """Two end tokens, and generation settings that would change the distribution: none of them does."""
    model = tiny("phi")
    with torch.no_grad():
        for parameter in model.get_output_embeddings().parameters():
            parameter.mul_(0.01)  # nearly uniform, so that both ends come up
    ends = [tokenizer.eos_token_id, 7]
    own = GenerationConfig(
        do_sample=True,
        temperature=0.1,
        top_p=0.3,
        min_p=0.5,
        repetition_penalty=3.0,
        no_repeat_ngram_size=1,
        suppress_tokens=[5, 6],
        eos_token_id=[7],
        max_new_tokens=2,
    )
    model.generation_config = own
    assert end_token_ids(model, tokenizer) == sorted(ends)
    prompts = [[9, 10, 11], [12, 13]]
    torch.manual_seed(0)
    samples = sample(model, tokenizer, prompts, n=100, max_new_tokens=40)
    assert model.generation_config is own
    counts = torch.bincount(samples.completion_ids[:, 0], minlength=80)
    assert (counts > 0).sum() > 65  # of 80; 200 draws miss 8 % of the tokens
    drawn = samples.completion_ids[samples.mask].tolist()
    assert {5, 6, *prompts[0]} <= {*drawn}  # the settings suppress these, and repeat no token
    ended = set()
    for row, mask, text in zip(samples.completion_ids.tolist(), samples.mask.tolist(), samples.texts, strict=True):
        length = next((at for at, token in enumerate(row, 1) if token in ends), len(row))
        assert mask == [at < length for at in range(len(row))]
        assert text == tokenizer.decode(row[:length], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        ended.add(row[length - 1])
    assert {*ends} <= ended
    hidden = samples.hidden(model)
    head = read_head(model)
    logps, _ = linear_logprobs(hidden, head.weight, samples.completion_ids, mask=samples.mask, **head.options())
    for at in (0, 199):  # alone, without padding
        length = int(samples.mask[at].sum())
        alone = torch.tensor([prompts[at // 100] + samples.completion_ids[at, :length].tolist()])
        logits = model(alone, use_cache=False).logits[0, -length - 1 : -1]
        expected = logits.log_softmax(-1).gather(1, alone[0, -length:, None])[:, 0]
        torch.testing.assert_close(logps[at, :length], expected, rtol=1e-4, atol=1e-5)


def test_end_tokens_behind_a_prompt_are_dropped_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert without_end([[3, 4, 2], [3, 2, 4], [2]], [2]) == [[3, 4], [3, 2, 4], [2]]
    assert "ends 1 of 3 prompts with an end token" in caplog.text
