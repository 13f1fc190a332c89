"""No sequence of a packed row sees another, in any architecture that is accepted."""

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ledger import ledger_of
from tiny_models import LATENT, ROUTED, SIZES, save_random
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    DeepseekV3Config,
    DogeConfig,
    Gemma2Config,
    GPT2Config,
    GPTNeoXConfig,
    Lfm2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    StableLmConfig,
)

from outcome_rl.grpo.config.schema import ModelConfig
from outcome_rl.grpo.model import packed_attention
from outcome_rl.grpo.model.packing import Layout, PackedBatch, PackingPlan, PaddedSequences, pack
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.types import Rollout

MULTI = {**SIZES, "num_key_value_heads": 1, "head_dim": 8}
Load = Callable[..., Policy]


@pytest.fixture
def load(tmp_path: Path, shared_policy: Policy) -> Load:
    """Load a random model of a configuration."""

    def load(config: PreTrainedConfig, **settings: Any) -> Policy:
        save_random(config, shared_policy.tokenizer, tmp_path)
        return Policy.load(ModelConfig(**{"path": str(tmp_path), "device": "cpu", "dtype": "float32", **settings}))

    return load


@pytest.fixture
def rollouts() -> list[Rollout]:
    prompts = [[5, 6, 7], [5, 6, 7], [9], [4, 4, 4, 4], [4, 4, 4, 4], *[[8] * 9] * 3]
    # Those to [4, 4, 4, 4] share a prefix, beyond the window of Mistral's. Of those to the last prompt, two are
    # computed without it.
    responses = [[10, 11, 12], [13], [14, 15, 16, 17, 18], [20, 21, 22, 23, 24], [20, 21, 22, 23, 25, 26]]
    responses += [[30, 31, 32], [33, 34, 35], [33, 36]]
    return [Rollout(prompt, response, "") for prompt, response in zip(prompts, responses, strict=True)]


def packed(rollouts: list[Rollout], rows: list[int], *, share: bool, layout: Layout) -> PackedBatch:
    return pack(PackingPlan.of(rollouts, share_prefixes=share), rows, layout)


def separate(policy: Policy, rollouts: list[Rollout], rows: list[int]) -> Tensor:
    """Compute the hidden states (M, H) of each sequence separately."""
    states = []
    for row in rows:
        prompt, response = rollouts[row].prompt_ids, rollouts[row].token_ids
        ids = torch.tensor([[*prompt, *response]])
        states.append(policy.hidden(ids, torch.ones_like(ids))[0, len(prompt) - 1 : -1])
    return torch.cat(states)


GPT2 = GPT2Config(vocab_size=80, n_embd=16, n_layer=1, n_head=2, eos_token_id=2, bos_token_id=1)
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "llama, grouped queries": LlamaConfig(**MULTI),
    "qwen2": Qwen2Config(**SIZES, num_key_value_heads=2),
    "qwen3": Qwen3Config(**MULTI),
    "mistral, window of 3": MistralConfig(**MULTI, sliding_window=3),
    "gemma2, window of 3, capped scores": Gemma2Config(**MULTI, sliding_window=3, attn_logit_softcapping=0.5),
    "deepseek v3, values narrower than keys": DeepseekV3Config(**SIZES, **LATENT, **ROUTED),
    "gpt-neox": GPTNeoXConfig(**SIZES),
    "gpt2, learned positions": GPT2,
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_packed_sequences_equal_separate_ones(config: PreTrainedConfig, load: Load, rollouts: list[Rollout]) -> None:
    policy, rows = load(config), [4, 3, 2, 0, 1, 5, 6, 7]
    parameters = list(policy.model.get_decoder().parameters())
    truth = separate(policy, rollouts, rows)
    weights = torch.randn(truth.shape, generator=torch.Generator().manual_seed(1))
    wanted = torch.autograd.grad((truth * weights).sum(), parameters)
    layouts: list[tuple[bool, Layout]] = [(True, "cut"), (True, "padded"), (False, "cut")]
    for share, layout in layouts:
        ours = policy.packed_hidden(packed(rollouts, rows, share=share, layout=layout))
        torch.testing.assert_close(ours, truth, rtol=1e-4, atol=1e-5)
        for our, true in zip(torch.autograd.grad((ours * weights).sum(), parameters), wanted, strict=True):
            torch.testing.assert_close(our, true, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("packs", [True, False])
def test_scores_are_capped_as_by_the_model_itself(packs: bool, load: Load, tmp_path: Path) -> None:
    """Not by transformers' "sdpa", which ignores the cap before its version 5.20 and refuses it since."""
    policy = load(CONFIGS["gemma2, window of 3, capped scores"], use_remove_padding=packs)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").get_decoder()
    ids = torch.arange(3, 27).reshape(2, 12)
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    with torch.no_grad():
        for given in (mask, torch.ones_like(mask)):
            seen = given.bool()
            truth = model(ids, attention_mask=given).last_hidden_state[seen]
            torch.testing.assert_close(policy.hidden(ids, given)[seen], truth, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "config",
    [
        MambaConfig(vocab_size=80, hidden_size=16, num_hidden_layers=1, eos_token_id=2, bos_token_id=1),
        Lfm2Config(**MULTI, layer_types=["conv", "full_attention"]),
        DogeConfig(**SIZES),
        StableLmConfig(**SIZES, num_key_value_heads=2),
    ],
    ids=["state space", "convolution", "masks of its own", "attention of its own"],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_models_that_cannot_be_packed_are_padded(
    config: PreTrainedConfig, dtype: str, load: Load, rollouts: list[Rollout], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        policy = load(config, dtype=dtype)
    assert not policy.packs
    assert f"{type(policy.model).__name__} is trained on padded rows" in caplog.text
    policy.model.float()
    batch = packed(rollouts, [2, 0, 6], share=False, layout=policy.attention_layout)
    truth = separate(policy, rollouts, [2, 0, 6])
    torch.testing.assert_close(policy.packed_hidden(batch), truth, rtol=1e-4, atol=1e-5)


def test_attention_that_ignores_the_layout_is_not_used(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **_: Any) -> tuple[Tensor, None]:
        return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2), None

    monkeypatch.setattr(packed_attention, "attend", careless)
    assert not load(CONFIGS["llama"]).packs


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe"])
def test_mixtures_of_experts_are_packed(kind: str, seed: int) -> None:
    """Their products depend on how many tokens go to each expert, and so does the rounding."""
    sizes = SIZES | {"hidden_size": 32, "intermediate_size": 32, "num_key_value_heads": 2}
    config = AutoConfig.for_model(kind, **sizes, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
    torch.manual_seed(seed)
    policy = Policy(AutoModelForCausalLM.from_config(config), None)
    policy.choose_rows(packs=True)
    assert policy.packs


def test_without_packing_the_model_is_unchanged(load: Load) -> None:
    assert load(CONFIGS["llama"], use_remove_padding=False).model.config._attn_implementation == "sdpa"


def test_a_saved_model_has_no_trace_of_packing(load: Load, tmp_path: Path) -> None:
    load(CONFIGS["llama"]).save(tmp_path / "saved")
    assert "outcome_rl" not in (tmp_path / "saved" / "config.json").read_text()
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "saved").config._attn_implementation == "sdpa"


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
) -> Tensor:
    """flash-attn's function of this name, written from its documentation."""
    assert causal
    assert softcap == 0
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
    assert max_seqlen_q == int(cu_seqlens_q.diff().max())
    assert max_seqlen_k == int(cu_seqlens_k.diff().max())
    results = []
    for queries, keys in zip(pairwise(cu_seqlens_q.tolist()), pairwise(cu_seqlens_k.tolist()), strict=True):
        # "The causal mask is aligned to the bottom right corner of the attention matrix."
        rows, columns = (torch.arange(start - end, 0) for start, end in (queries, keys))
        age = rows[:, None] - columns
        mask = (age >= 0) & ((age <= window_size[0]) if window_size[0] >= 0 else (age >= 0))
        heads = [x[slice(*span)].transpose(0, 1)[None] for x, span in ((q, queries), (k, keys), (v, keys))]
        result = nn.functional.scaled_dot_product_attention(
            *heads, attn_mask=mask, scale=softmax_scale, enable_gqa=q.shape[1] != k.shape[1]
        )
        results.append(result[0].transpose(0, 1))
    return torch.cat(results)


@pytest.mark.parametrize("name", ["llama, grouped queries", "mistral, window of 3"])
def test_flash_attention_is_given_ragged_sequences(
    name: str, load: Load, rollouts: list[Rollout], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = load(CONFIGS[name])
    monkeypatch.setitem(sys.modules, "flash_attn", SimpleNamespace(flash_attn_varlen_func=flash_attn_varlen_func))
    rows = [4, 3, 2, 0, 1, 5, 6, 7]
    batch = packed(rollouts, rows, share=True, layout="ragged")
    torch.testing.assert_close(policy.packed_hidden(batch), separate(policy, rollouts, rows), rtol=1e-4, atol=1e-5)


def test_flash_attention_is_for_half_precision_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda")
    assert not packed_attention.can_use_flash_attention(gpu, torch.bfloat16)  # not installed here
    monkeypatch.setattr(packed_attention, "find_spec", lambda name: name)
    assert packed_attention.can_use_flash_attention(gpu, torch.bfloat16)
    assert not packed_attention.can_use_flash_attention(gpu, torch.float32)
    assert not packed_attention.can_use_flash_attention(torch.device("cpu"), torch.bfloat16)


@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize("is_bool", [True, False])
def test_one_token_attends_with_grouped_heads_as_with_copies_of_the_keys(key_heads: int, is_bool: bool) -> None:
    g = torch.Generator().manual_seed(0)
    query = torch.randn(3, 4, 1, 8, generator=g, dtype=torch.float64)
    key, value = (torch.randn(3, key_heads, 6, 8, generator=g, dtype=torch.float64) for _ in range(2))
    mask = torch.arange(6) >= torch.tensor([0, 2, 5])[:, None, None, None]
    mask = mask if is_bool else torch.where(mask, 0.0, -1e9).double()
    found = packed_attention.attend_with_one_token(query, key, value, mask, 0.3)
    copies = (x.repeat_interleave(4 // key_heads, dim=1) for x in (key, value))
    expected = nn.functional.scaled_dot_product_attention(query, *copies, attn_mask=mask, scale=0.3)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


def test_decoding_on_a_gpu_copies_no_keys_for_query_heads() -> None:
    """On meta tensors, which take the GPU's path: nothing of the size of repeated keys is made."""
    P, A, G, L, D = 2, 8, 2, 64, 16
    query, key = torch.empty(P, A, 1, D, device="meta"), torch.empty(P, G, L, D, device="meta")
    mask = torch.empty(P, 1, 1, L, dtype=torch.bool, device="meta")
    found = ledger_of(lambda _: packed_attention.attend(nn.Module(), query, key, key, mask))
    assert all(operation.written_bytes < P * A * L * D * 4 for operation in found.operations)


@pytest.mark.parametrize(
    ("device", "window", "channels", "grouped"),
    [("meta", None, 16, True), ("meta", 3, 16, False), ("meta", None, 512, False), ("cpu", 3, 16, True)],
)
def test_a_gpu_is_given_kernels_that_hold_no_scores(
    device: str, window: int | None, channels: int, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meta tensors take the GPU's path: fewer key heads go only to flash attention, without a mask or wide heads."""
    given: list[bool] = []

    def attention(query: Tensor, key: Tensor, value: Tensor, *, enable_gqa: bool, **settings: Any) -> Tensor:
        given.append(enable_gqa)
        assert key.shape[1] == value.shape[1] == (2 if enable_gqa else 8)
        return query

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", attention)
    rollouts = [Rollout([1], [2, 3, 4, 5, 6], "")]
    row = pack(PackingPlan.of(rollouts, share_prefixes=True), [0], "padded")
    row = row._replace(
        attention=[PaddedSequences(*(x.to(device) for x in part)) for part in row.attention],
        slots_U=row.slots_U.to(device),
    )
    query, key = torch.ones(1, 8, 5, channels, device=device), torch.ones(1, 2, 5, channels, device=device)
    packed_attention.attend(nn.Module(), query, key, key, None, packed_batch=row, sliding_window=window)
    assert given == [grouped]
