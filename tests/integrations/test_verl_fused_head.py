"""verl 0.9.1's fused forward passes on our head: log-probabilities, entropies and gradients are those of logits.

verl's own code imports `outcome_rl.integrations.verl.fused_head` and chooses the model's forward pass.
"""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import vision_model
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2VLForConditionalGeneration
from verl import models
from verl.models.transformers.monkey_patch import patch_forward_with_backends
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.experimental import torch_functional as other_backends
from verl.utils.kernel import linear_cross_entropy as triton_backend
from verl.utils.torch_functional import entropy_from_logits, logprobs_from_logits
from verl_runs import verl_config

from outcome_rl.integrations.verl import kernels

MODULE = "outcome_rl.integrations.verl.fused_head"
MEGATRON = "verl.models.mcore.model_forward_fused"
HEADS = ((triton_backend, "linear_cross_entropy"), (other_backends, "FusedLinearForPPO"))
TEMPERATURE = 0.7


class Llama(LlamaForCausalLM):
    """A class of this test's own: verl replaces the forward pass of a model's class."""


def make_model(kind: type[LlamaForCausalLM]) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return kind(
        LlamaConfig(
            vocab_size=97,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    )


@pytest.fixture
def _replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let verl import the module, as its configuration names it; `setattr` notes what that replaces."""
    for place, name in HEADS:
        monkeypatch.setattr(place, name, getattr(place, name))
    megatron = ModuleType(MEGATRON)  # it needs Megatron; `verl.workers.engine` imports it where that is installed
    megatron.linear_cross_entropy = triton_backend.linear_cross_entropy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MEGATRON, megatron)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    make_model(LlamaForCausalLM).save_pretrained(tmp_path)
    settings = ("use_fused_kernels=true", f"external_lib={MODULE}", f"path={tmp_path}", "load_tokenizer=false")
    config = verl_config(tmp_path, *(f"actor_rollout_ref.model.{setting}" for setting in settings))
    assert not any(getattr(place, name).__module__.startswith("outcome_rl") for place, name in HEADS)
    omega_conf_to_dataclass(config.actor_rollout_ref.model)
    assert [getattr(place, name).__module__ for place, name in HEADS] == [kernels.__name__, MODULE]


@pytest.mark.usefixtures("_replaced")
def test_megatrons_forward_passes_get_it_too() -> None:
    """They bind verl's function when they are imported, which is before `external_lib`."""
    assert sys.modules[MEGATRON].linear_cross_entropy is kernels.linear_cross_entropy
    source = (Path(models.__file__).parent / "mcore/model_forward_fused.py").read_text()
    assert re.search(r"^from verl.utils.kernel.linear_cross_entropy import linear_cross_entropy$", source, re.MULTILINE)


@pytest.mark.usefixtures("_replaced")
@pytest.mark.parametrize("backend", ["triton", "torch"])
def test_fused_log_probabilities_and_entropies_are_those_of_logits(backend: str) -> None:
    generator = torch.Generator().manual_seed(1)
    ids, upstream = torch.randint(97, (6, 12), generator=generator), torch.randn(2, 6, 12, generator=generator)
    fused, plain = make_model(Llama), make_model(LlamaForCausalLM)
    patch_forward_with_backends(fused, use_fused_kernels=True, fused_kernels_backend=backend)

    output = fused(input_ids=ids, temperature=TEMPERATURE, return_dict=True)
    ours = torch.stack([output.log_probs.view(ids.shape), output.entropy.view(ids.shape)])
    logits = plain(input_ids=ids).logits / TEMPERATURE
    theirs = torch.stack([logprobs_from_logits(logits, ids.roll(-1, 1)), entropy_from_logits(logits)])
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    for values in (ours, theirs):
        (values * upstream).sum().backward()
    gradients, expected = ([parameter.grad for parameter in model.parameters()] for model in (fused, plain))
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-6)
    assert gradients[-1].abs().sum() > 0


class Vision(Qwen2VLForConditionalGeneration):
    """Likewise."""


@pytest.mark.usefixtures("_replaced")
@pytest.mark.parametrize("backend", ["triton", "torch"])
def test_those_of_a_vision_model_too(backend: str) -> None:
    ids = torch.tensor([[*vision_model.PROMPT, 9, 7, 8, 2]] * 2)
    fused, plain = (vision_model.make_model(kind) for kind in (Vision, Qwen2VLForConditionalGeneration))
    patch_forward_with_backends(fused, use_fused_kernels=True, fused_kernels_backend=backend)
    inputs = vision_model.images(2) | {"input_ids": ids, "position_ids": torch.arange(ids.shape[1]).expand(4, 2, -1)}
    ours = fused(**inputs, temperature=TEMPERATURE).log_probs.view(ids.shape)
    theirs = logprobs_from_logits(plain(**inputs).logits / TEMPERATURE, ids.roll(-1, 1))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    ours.sum().backward()
    assert fused.model.visual.patch_embed.proj.weight.grad.abs().max() > 0
