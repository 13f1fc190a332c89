"""Kept tokens in TRL's trainer: loss, old and reference log-probabilities are those of the truncated policy.

`tests/vllm/test_trl.py` samples with TRL's vLLM. Here a rollout function returns the kept tokens, or a stand-in for
TRL's `VLLMGeneration` the log-probabilities of the most likely ones.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from trl import GRPOTrainer
from trl_runs import generate, make_trainer, rollouts

from outcome_rl.integrations.trl.fused_loss import KEPT
from outcome_rl.integrations.trl.kept_tokens import keep_tokens

TOP_K, TEMPERATURE = 6, 0.7


def processed(trainer: Any, prompt: list[int], completion: list[int]) -> Tensor:
    """Log-probabilities of the tokens of a completion after top-k; the sampled token is kept, as in a sample."""
    with torch.no_grad():
        logits = trainer.model(input_ids=torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
    logits = logits.double() / TEMPERATURE
    is_kept = torch.zeros_like(logits, dtype=torch.bool).scatter(1, logits.topk(TOP_K).indices, True)
    is_kept.scatter_(1, torch.tensor(completion)[:, None], True)
    return logits.masked_fill(~is_kept, -torch.inf).log_softmax(dim=-1)


def truncated(prompts: list[Any], trainer: Any) -> dict[str, Any]:
    """A rollout function that returns the tokens that its sampler kept."""
    found = rollouts(prompts, trainer)
    tables = [processed(trainer, *pair) for pair in zip(found["prompt_ids"], found["completion_ids"], strict=True)]
    return found | {KEPT: [[row.isfinite().nonzero()[:, 0].tolist() for row in table] for table in tables]}


def masked_logps(trainer: Any, model: Any, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies of a generation batch in float64, from logits that are masked."""
    ids, mask = (torch.cat([inputs[f"prompt_{name}"], inputs[f"completion_{name}"]], dim=1) for name in ("ids", "mask"))
    width = inputs["completion_ids"].shape[1]
    logits = model(input_ids=ids, attention_mask=mask).logits[:, -width - 1 : -1].double() / TEMPERATURE
    kept = inputs[KEPT].long()
    is_kept = torch.zeros(*logits.shape[:2], logits.shape[2] + 1, dtype=torch.bool)
    is_kept.scatter_(2, kept.where(kept >= 0, logits.shape[2]), True)
    is_kept = is_kept[..., :-1] | ~inputs["completion_mask"].bool()[..., None]
    logps = logits.masked_fill(~is_kept, -torch.inf).log_softmax(dim=-1)
    entropies = -(logps.exp() * logps.nan_to_num(neginf=0.0)).sum(dim=-1)
    return logps.gather(2, inputs["completion_ids"][..., None])[..., 0], entropies


def test_loss_and_gradient_are_those_of_masked_logits(policy: Path, tmp_path: Path) -> None:
    settings = {"beta": 0.05, "use_bias_correction_kl": False, "temperature": TEMPERATURE, "entropy_coef": 0.1}
    trainer = make_trainer(policy, tmp_path, fused_loss=True, rollout_func=truncated, num_iterations=2, **settings)
    inputs = generate(trainer, 0, 1, 2)
    trainer.current_gradient_accumulation_steps = 1
    mask = inputs["completion_mask"].bool()
    old, reference = inputs["old_per_token_logps"], inputs["ref_per_token_logps"]
    with torch.no_grad():
        logps, _ = masked_logps(trainer, trainer.model, inputs)
        of_reference, _ = masked_logps(trainer, trainer.ref_model, inputs)
    torch.testing.assert_close(old[mask].double(), logps[mask], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(reference[mask].double(), of_reference[mask], rtol=1e-5, atol=1e-5)

    with torch.no_grad():  # the policy after some updates, so that ratios and KL are not trivial
        generator = torch.Generator().manual_seed(1)
        for parameter in trainer.model.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))
    loss = trainer._compute_loss(trainer.model, inputs)
    ours = torch.autograd.grad(loss, [*trainer.model.parameters()])
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (
        *masked_logps(trainer, trainer.model, inputs),
        None,
    )
    expected = GRPOTrainer._compute_loss(trainer, trainer.model, inputs)
    theirs = torch.autograd.grad(expected, [*trainer.model.parameters()])
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    for found, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


class Engine:
    """`VLLMGeneration` in the trainer's process, as far as the plug-in touches it; its limit is vLLM's default."""

    mode, logprobs = "colocate", 0

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.llm = SimpleNamespace(llm_engine=SimpleNamespace(model_config=SimpleNamespace(max_logprobs=20)))

    def generate(self, prompts: list[list[int]], images: Any, num_generations: int, profiler: Any) -> tuple[Any, ...]:
        assert self.logprobs <= self.llm.llm_engine.model_config.max_logprobs
        completions = rollouts([""] * len(prompts), self.trainer)["completion_ids"]
        logps, ids = [], []
        for pair in zip(prompts, completions, strict=True):
            best = processed(self.trainer, *pair).topk(self.logprobs + 1)
            logps.append(best.values.tolist())
            ids.append(best.indices.tolist())
        return prompts, completions, logps, ids


def with_engine(policy: Path, folder: Path, *, fused_loss: bool = True, **settings: Any) -> Any:
    trainer = make_trainer(
        policy, folder, fused_loss=fused_loss, rollout_func=None, temperature=TEMPERATURE, top_k=TOP_K, **settings
    )
    trainer.use_vllm, trainer.vllm_generation = True, Engine(trainer)
    trainer._last_loaded_step = trainer.state.global_step
    if fused_loss:
        keep_tokens(trainer)
    return trainer


def test_vllms_kept_ids_reach_the_loss(policy: Path, tmp_path: Path) -> None:
    """And TRL gets the log-probability of the sampled token, not of the most likely one."""
    trainer = with_engine(policy, tmp_path)
    inputs = generate(trainer, 0, 1, 2)
    assert trainer.vllm_generation.logprobs == 2 * TOP_K + 8
    mask = inputs["completion_mask"].bool()
    sizes = (inputs[KEPT] >= 0).sum(dim=2)[mask]
    assert set(sizes.tolist()) <= {TOP_K, TOP_K + 1}
    sampled, old = inputs["sampling_per_token_logps"], inputs["old_per_token_logps"]
    torch.testing.assert_close(sampled[mask], old[mask], rtol=1e-5, atol=1e-5)
    ratios = inputs["importance_sampling_ratio"]
    assert (ratios[mask] if ratios.shape == mask.shape else ratios).mean().item() == pytest.approx(1, abs=1e-4)
    whole = generate(with_engine(policy, tmp_path, fused_loss=False), 0, 1, 2)
    assert KEPT not in whole


def test_kept_tokens_that_are_unknown_are_warned_of(
    policy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = with_engine(policy, tmp_path)
    trainer.top_k, trainer.top_p = 0, 0.9
    keep_tokens(trainer)
    assert "top_k must bound their number" in caplog.text
    trainer.use_vllm = False
    keep_tokens(trainer)
    assert "transformers does not return them" in caplog.text
    trainer.use_vllm, trainer.top_k, trainer.sample_below = True, 5, 1e-4
    with pytest.raises(ValueError, match=r"sample_below=0.0001 cannot be combined with top_k=5"):
        keep_tokens(trainer)


def test_kept_ids_that_do_not_fit_are_refused(policy: Path, tmp_path: Path) -> None:
    def short(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        found = truncated(prompts, trainer)
        found[KEPT][0].pop()
        return found

    with pytest.raises(ValueError, match="kept_ids must hold a list of token ids for each token"):
        generate(make_trainer(policy, tmp_path, fused_loss=True, rollout_func=short), 0, 1, 2)
    with pytest.raises(ValueError, match="kept_ids needs fused_loss=True"):
        generate(make_trainer(policy, tmp_path, rollout_func=truncated), 0, 1, 2)
