"""Hidden states times the head's weight are the model's logits, or the model is refused."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import SIZES
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    OPTConfig,
    PreTrainedConfig,
)

from outcome_rl.grpo.config.schema import ModelConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.model.source import check_context

GROUPED = {**SIZES, "num_key_value_heads": 2}
GPT2 = GPT2Config(vocab_size=80, n_embd=16, n_layer=1, n_head=2, eos_token_id=2, bos_token_id=1)
Saved = Callable[[PreTrainedConfig], Path]


@pytest.fixture
def saved(tmp_path: Path, shared_policy: Policy) -> Saved:
    """Writes a random model of a configuration, with the toy tokenizer."""

    def save(config: PreTrainedConfig) -> Path:
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
        shared_policy.tokenizer.save_pretrained(tmp_path)
        return tmp_path

    return save


def test_hidden_times_head_is_logits(saved: Saved) -> None:
    config = Gemma2Config(**GROUPED, head_dim=8, final_logit_softcapping=0.5)
    policy = Policy.load(ModelConfig(path=str(saved(config)), device="cpu", dtype="float32"))
    ids = torch.arange(24).reshape(2, 12) % 80
    with torch.no_grad():
        rebuilt = policy.head.logits(policy.hidden(ids, torch.ones_like(ids)))
        torch.testing.assert_close(rebuilt, policy.model(ids).logits)
    assert policy.frozen_copy().head[1:] == policy.head[1:]


LONG_ROPE = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "original_max_position_embeddings": 48}


@pytest.mark.parametrize(
    ("kind", "more", "limit"),
    [
        ("default", {}, 64),
        ("linear", {"factor": 2.0}, 128),
        ("yarn", {"factor": 4.0, "original_max_position_embeddings": 64}, 256),
        ("dynamic", {"factor": 2.0}, 64),
        ("longrope", LONG_ROPE, 48),
    ],
)
def test_sequences_longer_than_the_model_are_refused(kind: str, more: dict[str, Any], limit: int) -> None:
    rope = {"rope_type": kind, "rope_theta": 1e4, **more}
    shape = LlamaConfig(**GROUPED, max_position_embeddings=64, rope_parameters=rope)
    check_context(shape, limit - 40, 40)
    with pytest.raises(ValueError, match=f" {limit} positions"):
        check_context(shape, limit - 39, 40)


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_hidden_does_not_see_padding(positions: str, shared_policy: Policy, saved: Saved) -> None:
    # Rotary attention sees distances alone; learned embeddings need the right position of every token.
    policy = (
        shared_policy
        if positions == "rotary"
        else Policy.load(ModelConfig(path=str(saved(GPT2)), device="cpu", dtype="float32"))
    )
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 70, (3, 12), generator=generator)
    with torch.no_grad():
        plain = policy.hidden(ids, torch.ones_like(ids))
        for left, right in ((5, 0), (0, 4), (7, 3)):
            padded = nn.functional.pad(ids, (left, right), value=0)
            mask = nn.functional.pad(torch.ones_like(ids), (left, right), value=0)
            hidden = policy.hidden(padded, mask)[:, left : left + 12]
            torch.testing.assert_close(hidden, plain, rtol=1e-4, atol=1e-5)
        # The model does see its tokens.
        other = ids.clone()
        other[:, 0] += 1
        assert (policy.hidden(other, torch.ones_like(ids)) - plain).abs().max() > 1e-2


def test_the_frozen_copy_does_not_change(policy: Policy) -> None:
    frozen = policy.frozen_copy()
    before = frozen.head.weight.clone()
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(1.0)
    assert torch.equal(frozen.head.weight, before)
    assert not any(parameter.requires_grad for parameter in frozen.model.parameters())
    assert all(parameter.requires_grad for parameter in policy.model.parameters())


def test_bfloat16_applies_to_weights_arithmetic_and_files(shared_policy: Policy, tmp_path: Path) -> None:
    policy = Policy.load(ModelConfig(path="toy", device="cpu", dtype="bfloat16"))
    assert torch.equal(policy.head.weight, shared_policy.head.weight.bfloat16())
    ids = torch.arange(24).reshape(2, 12) % 80
    with torch.no_grad():
        exact = shared_policy.hidden(ids, torch.ones_like(ids))
        for rounding in (policy, policy.frozen_copy()):
            hidden = rounding.hidden(ids, torch.ones_like(ids)).float()
            assert 2**-12 < (hidden - exact).norm() / exact.norm() < 2**-5  # bfloat16 keeps 8 bits
    policy.save(tmp_path)
    assert {tensor.dtype for tensor in load_file(tmp_path / "model.safetensors").values()} == {torch.bfloat16}


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_weights_stored_in_half_precision_are_trained_in_full(
    stored: torch.dtype, shared_policy: Policy, tmp_path: Path
) -> None:
    copy.deepcopy(shared_policy.model).to(stored).save_pretrained(tmp_path)
    shared_policy.tokenizer.save_pretrained(tmp_path)
    policy = Policy.load(ModelConfig(path=str(tmp_path), device="cpu", dtype="float32"))
    assert policy.head.weight.dtype == torch.float32
    assert torch.equal(policy.head.weight, shared_policy.head.weight.to(stored).float())


@pytest.fixture
def with_generation(shared_policy: Policy, tmp_path: Path) -> Callable[..., Path]:
    """Writes the toy policy with other generation settings."""

    def write(**settings: Any) -> Path:
        shared_policy.save(tmp_path / "model")
        (tmp_path / "model" / "generation_config.json").write_text(json.dumps(settings))
        return tmp_path / "model"

    return write


@pytest.mark.parametrize(
    ("settings", "changed"), [({"do_sample": False, "temperature": 0.6, "top_p": 0.9}, True), ({}, False)]
)
def test_a_temperature_with_greedy_decoding_can_be_saved(
    settings: dict[str, Any], changed: bool, with_generation: Callable[..., Path], tmp_path: Path
) -> None:
    path = with_generation(**settings)
    Policy.load(ModelConfig(path=str(path), device="cpu", dtype="float32")).save(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert bool(saved.get("do_sample")) == changed
    assert saved.items() >= (settings | ({"do_sample": True} if changed else {})).items()


def test_generation_settings_that_cannot_be_saved_are_refused_at_once(with_generation: Callable[..., Path]) -> None:
    path = with_generation(length_penalty=0.5)
    with pytest.raises(ValueError, match=r"(?s)correct or remove its generation_config\.json.*length_penalty"):
        Policy.load(ModelConfig(path=str(path), device="cpu", dtype="float32"))


@pytest.mark.parametrize("ends", ["x", [[1]], [1.0]])
def test_end_tokens_that_are_no_ids_are_refused(ends: object, with_generation: Callable[..., Path]) -> None:
    policy = Policy.load(ModelConfig(path=str(with_generation(eos_token_id=ends)), device="cpu", dtype="float32"))
    with pytest.raises(ValueError, match=r"eos_token_id of generation_config\.json"):
        _ = policy.end_token_ids


def test_save_and_load_are_exact(policy: Policy, tmp_path: Path) -> None:
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.1)
    policy.save(tmp_path)
    fresh = Policy.load(ModelConfig(path="toy", device="cpu", dtype="float32"))
    weight = fresh.head.weight  # loading must keep the tensors that an optimizer holds
    fresh.load_weights(tmp_path)
    assert fresh.head.weight is weight
    wanted: dict[str, Any] = policy.model.state_dict()
    assert wanted.keys() == fresh.model.state_dict().keys()
    assert all(torch.equal(value, wanted[name]) for name, value in fresh.model.state_dict().items())


NORM = "model.norm.weight"


@pytest.mark.parametrize("change", ["removed", "renamed", "reshaped", "cast"])
def test_a_model_with_other_tensors_than_its_source_is_neither_saved_nor_handed_over(
    change: str, policy: Policy, tmp_path: Path
) -> None:
    body = policy.model.model
    if change == "removed":
        body.norm.weight = None
    elif change == "renamed":
        body.layers[0].mlp.more = nn.Linear(1, 1)
    elif change == "reshaped":
        body.norm.weight = nn.Parameter(torch.ones(3))
    else:
        body.norm.bfloat16()
    name = "mlp.more" if change == "renamed" else NORM
    with pytest.raises(ValueError, match=rf"the weights in .* would not be the model that was loaded: .*{name}"):
        policy.save(tmp_path)
    with pytest.raises(ValueError, match=rf"the weights for the rollout engine would not be .*{name}"):
        policy.published_weights()


def test_a_layer_that_applies_dropout_itself_is_recomputed_without(saved: Saved) -> None:
    """OPT's own dropout is in the decoder layer, whose mode decides whether transformers recomputes it."""
    sizes = {"word_embed_proj_dim": 16, "ffn_dim": 16, "dropout": 0.5}
    path, ids = str(saved(OPTConfig(**SIZES, **sizes))), torch.arange(24).reshape(2, 12) + 40
    gradients = []
    for recomputes in (False, True):
        settings = ModelConfig(path=path, device="cpu", dtype="float32", enable_gradient_checkpointing=recomputes)
        policy = Policy.load(settings)
        policy.hidden(ids, torch.ones_like(ids)).square().sum().backward()
        gradients.append([weight.grad for weight in policy.model.get_decoder().parameters()])
    for ours, theirs in zip(*gradients, strict=True):
        assert torch.equal(ours, theirs)


def rewritten(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], object]:
    """Change the tensors of a saved file."""

    def rewrite(path: Path) -> None:
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path, metadata={"format": "pt"})

    return rewrite


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (rewritten(lambda tensors: tensors.pop(NORM)), f"lack the tensors {NORM}"),
        (rewritten(lambda tensors: tensors.update({NORM: torch.ones(3)})), "another configuration"),
        (rewritten(lambda tensors: tensors.clear()), "lack"),
        (lambda path: path.write_bytes(b""), "damaged"),
        (lambda path: path.write_bytes(b"not safetensors"), "damaged"),
    ],
)
def test_weights_that_are_not_whole_are_refused(
    policy: Policy, tmp_path: Path, change: Callable[[Path], object], named: str
) -> None:
    policy.save(tmp_path)
    change(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=rf"model\.path='{tmp_path}' cannot be loaded: .*{named}"):
        Policy.load(ModelConfig(path=str(tmp_path), device="cpu", dtype="float32"))
    with pytest.raises(ValueError, match=named):
        policy.load_weights(tmp_path)
