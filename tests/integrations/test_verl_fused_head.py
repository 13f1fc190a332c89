"""Every policy loss of verl 0.9.1 on log-probabilities of `outcome_rl.integrations.verl.fused_head`.

verl's own code chooses the model's forward pass and computes the loss.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

pytest.importorskip("verl")
from verl.models.transformers.monkey_patch import patch_forward_with_backends
from verl.trainer.ppo import core_algos
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.experimental import torch_functional as other_backends
from verl.utils.kernel import linear_cross_entropy as triton_backend
from verl.utils.torch_functional import entropy_from_logits, logprobs_from_logits
from verl_runs import verl_config

from outcome_rl.integrations.verl import kernels

MODULE = "outcome_rl.integrations.verl.fused_head"
FUSED = (
    "actor_rollout_ref.model.use_fused_kernels=true",
    f"actor_rollout_ref.model.external_lib={MODULE}",
)
ROWS, PROMPT, RESPONSE = 6, 3, 9
TEMPERATURE = 0.7
# `bypass_mode` picks one of the others by settings of its own.
LOSSES = sorted(set(core_algos.POLICY_LOSS_REGISTRY) - {"bypass_mode"})


@pytest.fixture
def _replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import the module for one test; `setattr` notes what it replaces."""
    for place, name in ((triton_backend, "linear_cross_entropy"), (other_backends, "FusedLinearForPPO")):
        monkeypatch.setattr(place, name, getattr(place, name))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    importlib.import_module(MODULE)


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


def loss_of(name: str, config: Any, logps: Tensor, entropies: Tensor) -> Tensor:
    """Compute one of verl's losses with an entropy bonus, ratios on both sides of every bound."""
    generator = torch.Generator().manual_seed(3)
    mask = torch.rand(ROWS, RESPONSE, generator=generator) > 0.3
    loss, _ = core_algos.get_policy_loss_fn(name)(
        old_log_prob=logps.detach() + 0.3 * torch.randn(ROWS, RESPONSE, generator=generator),
        log_prob=logps,
        advantages=torch.randn(ROWS, 1, generator=generator).expand(-1, RESPONSE) * mask,
        response_mask=mask,
        loss_agg_mode="seq-mean-token-mean" if name in ("gspo", "geo_mean") else "token-mean",
        config=config,
    )
    return loss - 0.01 * (entropies * mask).sum() / mask.sum()


@pytest.mark.usefixtures("_replaced")
@pytest.mark.parametrize(("name", "backend"), [*((name, "triton") for name in LOSSES), ("vanilla", "torch")])
def test_a_loss_on_fused_log_probabilities_equals_the_one_on_logits(name: str, backend: str, tmp_path: Path) -> None:
    config = omega_conf_to_dataclass(
        verl_config(
            tmp_path,
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
            f"actor_rollout_ref.actor.policy_loss.loss_mode={name}",
            "actor_rollout_ref.actor.policy_loss.dro_beta=0.1",
        ).actor_rollout_ref.actor
    )
    ids = torch.randint(97, (ROWS, PROMPT + RESPONSE), generator=torch.Generator().manual_seed(1))
    labels = ids.roll(-1, 1)
    fused, plain = make_model(Llama), make_model(LlamaForCausalLM)
    patch_forward_with_backends(fused, use_fused_kernels=True, fused_kernels_backend=backend)

    output = fused(input_ids=ids, temperature=TEMPERATURE, return_dict=True)
    logits = plain(input_ids=ids).logits / TEMPERATURE
    results = []
    for model, logps, entropies in (
        (fused, output.log_probs.view(ids.shape), output.entropy.view(ids.shape)),
        (plain, logprobs_from_logits(logits, labels), entropy_from_logits(logits)),
    ):
        response = slice(PROMPT - 1, -1)
        torch.manual_seed(0)  # some losses draw tokens
        loss = loss_of(name, config, logps[:, response], entropies[:, response])
        loss.backward()
        results.append((loss.detach(), [parameter.grad for parameter in model.parameters()]))
    (loss, gradients), (plain_loss, plain_gradients) = results
    torch.testing.assert_close(loss, plain_loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradients, plain_gradients, rtol=1e-4, atol=1e-6)
    assert gradients[-1].abs().sum() > 0


def test_verl_imports_the_module_where_its_configuration_names_it(tmp_path: Path) -> None:
    """In a process of its own: what is replaced stays replaced."""
    make_model(LlamaForCausalLM).save_pretrained(tmp_path / "model")
    script = f"""
import json
from transformers import AutoConfig
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.experimental import torch_functional as other_backends
from verl.utils.kernel import linear_cross_entropy as triton_backend
from verl_runs import verl_config
from pathlib import Path
config = verl_config(Path({str(tmp_path)!r}), *{FUSED!r}, "actor_rollout_ref.model.path={tmp_path / "model"}",
    "actor_rollout_ref.model.load_tokenizer=false").actor_rollout_ref.model
def heads():
    return [triton_backend.linear_cross_entropy.__module__, other_backends.FusedLinearForPPO.__module__]
before = heads()
omega_conf_to_dataclass(config)
print(json.dumps([before, heads()]))
"""
    helpers = str(Path(__file__).parents[1] / "helpers")
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {helpers!r})\n{script}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    before, after = json.loads(found.stdout.splitlines()[-1])
    assert not any(name.startswith("outcome_rl") for name in before)
    assert after == [kernels.__name__, MODULE]
