"""Divergences of TRL's distillation trainer, and ours in their place."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import trl.trainer.utils
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from trl.trainer import distillation_trainer
from trl_runs import Gradients, questions, tokenizer

from outcome_rl.integrations.trl.fused_head import chunked_divergence_loss, use_fused_head

TRLS = distillation_trainer._chunked_divergence_loss
B, T, H, V = 3, 7, 16, 83
SCALES = {"student_logit_scale": 0.8, "teacher_logit_scale": 1.5}
CAPS = {"student_final_logit_softcapping": 3.0, "teacher_final_logit_softcapping": 5.0}


def operands(dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    g = torch.Generator().manual_seed(0)
    shapes = [(B, T, H), (B, T, 2 * H), (V, H), (V, 2 * H), (V,), (V,)]
    tensors = [torch.randn(shape, generator=g).div(4 if shape[0] == V else 1).to(dtype) for shape in shapes]
    return tensors[:4], tensors[4:]


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(
    ("dtype", "others"),
    [(torch.float32,) * 2, (torch.bfloat16,) * 2, (torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)],
)  # of the student's hidden states and weight, and of the teacher's and the biases
@pytest.mark.parametrize("options", [{}, SCALES | CAPS | {"num_items_in_batch": torch.tensor(40)}])
def test_values_and_gradients_are_trls(
    beta: float, dtype: torch.dtype, others: torch.dtype, options: dict[str, Any]
) -> None:
    heads, biases = operands(others)
    heads[::2] = operands(dtype)[0][::2]
    mask = torch.rand(B, T, generator=torch.Generator().manual_seed(1)) < 0.7
    found = []
    for function in (chunked_divergence_loss, TRLS):
        leaves = [tensor.clone().requires_grad_() for tensor in heads]
        bias = biases[0].clone().requires_grad_()
        named = {"student_lm_head_bias": bias, "teacher_lm_head_bias": biases[1], "temperature": 0.7}
        loss, entropies, tokens = function(*leaves, mask.int(), beta, **named, **options)
        loss.backward()
        found.append([loss.detach(), entropies, tokens, leaves[0].grad, leaves[2].grad, bias.grad])
    for ours, theirs in zip(*found, strict=True):
        size = float(theirs.abs().max())
        rtol = 1e-5 if theirs.dtype == torch.float32 or theirs.dim() == 0 else 2**-7
        torch.testing.assert_close(ours.to(theirs.dtype), theirs, rtol=rtol, atol=4 * rtol * size)


@pytest.mark.parametrize("beta", [-0.1, 1.5])
def test_a_mixture_out_of_range_is_refused(beta: float) -> None:
    heads, _ = operands(torch.float32)
    with pytest.raises(ValueError, match="mixture"):
        chunked_divergence_loss(*heads, torch.ones(B, T), beta)


def test_trls_trainer_distils_the_same_with_it(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses, entropies and gradients of three steps on TRL's own samples, from a teacher of another width."""
    for module, name in ((distillation_trainer, TRLS.__name__), (trl.trainer.utils, "_ChunkedLogProbFunction")):
        monkeypatch.setattr(module, name, getattr(module, name))  # restored after the test
    ours, theirs = (inspect.signature(function).parameters for function in (chunked_divergence_loss, TRLS))
    assert {name: one.default for name, one in ours.items()} == {name: one.default for name, one in theirs.items()}
    sizes = {"vocab_size": len(tokenizer()), "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(1)
    teacher = LlamaForCausalLM(LlamaConfig(hidden_size=24, intermediate_size=16, initializer_range=0.3, **sizes))
    args = {
        "beta": 0.5,
        "learning_rate": 0.1,
        "max_steps": 3,
        "logging_steps": 1,
        "max_completion_length": 12,
        "per_device_train_batch_size": 3,
    }
    found = []
    for install in (lambda: None, use_fused_head):
        install()
        trainer = trl.DistillationTrainer(
            model=str(policy),
            teacher_model=teacher,
            args=trl.DistillationConfig(
                output_dir=str(tmp_path),
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                bf16=False,
                optim="sgd",
                **args,
            ),
            train_dataset=questions(),
        )
        gradients = Gradients()
        trainer.add_callback(gradients)
        trainer.train()
        rows = [row for row in trainer.state.log_history if "loss" in row]
        found.append(([row["loss"] for row in rows], [row["entropy"] for row in rows], gradients.of_steps))
    assert distillation_trainer._chunked_divergence_loss is chunked_divergence_loss
    assert len(found[0][0]) == 3
    assert min(found[0][0]) > 0.01
    for one, other in zip(found[1][:2], found[0][:2], strict=True):
        assert one == pytest.approx(other, rel=1e-4)
    for one, other in zip(found[1][2], found[0][2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)
