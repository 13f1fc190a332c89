"""An update is the gradient step of the whole batch, however it is cut into micro-batches."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from outcome_rl.driver.config import ModelConfig, SamplingConfig, TrainConfig
from outcome_rl.driver.policy import Policy
from outcome_rl.driver.rollout import TransformersEngine
from outcome_rl.driver.update import ScoredRollouts, Updater

LR = 1e-2
FLOAT, BFLOAT = torch.float32, torch.bfloat16
ALL = "actor.ppo_micro_batch_size_per_gpu=100"
MakeConfig = Callable[..., TrainConfig]


@pytest.fixture(scope="module")
def base(shared_policy: Policy) -> Policy:
    """The embedded policy in float64."""
    return Policy(copy.deepcopy(shared_policy.model).double(), shared_policy.tokenizer)


@pytest.fixture(scope="module")
def batch(base: Policy) -> ScoredRollouts:
    """Seven responses of unlike length to prompts of unlike length, with made-up scores."""
    prompts = base.tokenizer(["D07 17 @ 5 # 3 =>", "D01", "D12 39 ^ 9", "2", "D03 1 1 1 1 =>", "1 2 3", "D02"])
    rollouts = TransformersEngine(base, 64).generate(prompts["input_ids"], SamplingConfig(n=1, temperature=1.5), 14, 3)
    assert len(set(rollouts.completion_mask.sum(dim=1).tolist())) > 2
    generator = torch.Generator().manual_seed(0)
    answer = (torch.rand(rollouts.completion_ids.shape, generator=generator) < 0.3) & rollouts.completion_mask
    return ScoredRollouts(
        rollouts=rollouts,
        advantages=torch.randn(7, generator=generator),
        bonuses=torch.rand(7, generator=generator),
        answer_mask=answer,
        correct=torch.tensor([True, False, False, True, False, False, True]),
    )


@pytest.fixture(scope="module")
def make_config(small_config: MakeConfig) -> MakeConfig:
    settings = (f"actor.optim.lr={LR}", "actor.optim.lr_warmup_steps=0", "actor.kl_loss_coef=0.1")
    return lambda *more: small_config(Path("unused"), *settings, *more)


def clone(policy: Policy) -> Policy:
    return Policy(copy.deepcopy(policy.model), policy.tokenizer)


def stepped(base: Policy, config: TrainConfig, batch: ScoredRollouts, steps: int = 2) -> tuple[Policy, Any]:
    policy = clone(base)
    updater = Updater(policy, config, total_steps=10)
    for _ in range(steps):
        stats = updater.step(batch)
    return policy, stats


def plain_logps(policy: Policy, batch: ScoredRollouts, temperature: float) -> list[torch.Tensor]:
    """Log-probabilities of each response by a forward pass of its own, without padding."""
    rollouts, found = batch.rollouts, []
    for row in range(len(batch.advantages)):
        prompt = rollouts.prompt_ids[row][rollouts.prompt_mask[row]]
        completion = rollouts.completion_ids[row][rollouts.completion_mask[row]]
        logits = policy.model(torch.cat([prompt, completion])[None]).logits[0, len(prompt) - 1 : -1]
        logps = torch.log_softmax(logits / temperature, dim=-1)
        found.append(logps.gather(1, completion[:, None])[:, 0])
    return found


@pytest.mark.parametrize("answer_mask_mode", ["policy", "bonus", "all", "none"])
@pytest.mark.parametrize(
    "loss_agg_mode",
    ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"],
)
def test_micro_batches_add_up_to_the_batch(
    loss_agg_mode: str, answer_mask_mode: str, base: Policy, batch: ScoredRollouts, make_config: MakeConfig
) -> None:
    modes = (
        f"actor.loss_agg_mode={loss_agg_mode}",
        f"exploration.answer_mask_mode={answer_mask_mode}",
        "actor.entropy_coeff=0.01",
    )
    whole, whole_stats = stepped(base, make_config(ALL, *modes), batch)
    assert whole_stats.kl > 0
    for size in (1, 3):
        parts, stats = stepped(base, make_config(f"actor.ppo_micro_batch_size_per_gpu={size}", *modes), batch)
        for name in ("loss", "kl", "grad_norm"):
            assert getattr(stats, name) == pytest.approx(getattr(whole_stats, name), rel=1e-6, abs=1e-9), name
        assert stats.entropy == pytest.approx(whole_stats.entropy, rel=1e-5)
        for part, full, start in zip(
            parts.model.parameters(), whole.model.parameters(), base.model.parameters(), strict=True
        ):
            torch.testing.assert_close(part.grad, full.grad, rtol=1e-6, atol=1e-9)
            torch.testing.assert_close(part, full, rtol=1e-6, atol=1e-6)
            assert (part - start).abs().max() > LR / 2  # the step itself is far larger than the tolerance


def test_the_gradient_is_that_of_the_formula(base: Policy, batch: ScoredRollouts, make_config: MakeConfig) -> None:
    """On-policy and at the reference: - sum over non-answer tokens of (A + b) log p, over all completion tokens."""
    policy, _ = stepped(base, make_config("actor.grad_clip=1e9"), batch, steps=1)
    wanted = clone(base)
    loss = torch.zeros((), dtype=torch.float64)
    for row, logps in enumerate(plain_logps(wanted, batch, temperature=1.0)):
        outside = ~batch.answer_mask[row][batch.rollouts.completion_mask[row]]
        loss = loss - (batch.advantages[row] + batch.bonuses[row]) * logps[outside].sum()
    (loss / batch.rollouts.num_tokens).backward()  # type: ignore[no-untyped-call]
    for ours, theirs in zip(policy.model.parameters(), wanted.model.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logps_are_those_of_the_sampling_policy(
    temperature: float, base: Policy, batch: ScoredRollouts, make_config: MakeConfig
) -> None:
    seen: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def spy(_: Any, arguments: tuple[Any, ...], inputs: dict[str, Any], output: Any) -> None:
        seen.append((output.logps, inputs["ref_logps"], arguments[4]))

    policy = clone(base)
    config = make_config(f"rollout.temperature={temperature}", "actor.ppo_micro_batch_size_per_gpu=1")
    updater = Updater(policy, config, total_steps=2)
    updater.loss.register_forward_hook(spy, with_kwargs=True)
    first = updater.step(batch)
    with torch.no_grad():
        at_base, moved = plain_logps(base, batch, temperature), plain_logps(policy, batch, temperature)
    updater.step(batch)
    assert first.kl == pytest.approx(0.0, abs=1e-12)
    for row, (logps, reference, mask) in enumerate(seen):
        expected = at_base[row] if row < 7 else moved[row - 7]
        torch.testing.assert_close(logps[mask], expected, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(reference[mask], at_base[row % 7], rtol=1e-6, atol=1e-8)
    assert len(seen) == 14


def test_importance_weights_multiply_the_policy_term(
    base: Policy, batch: ScoredRollouts, make_config: MakeConfig
) -> None:
    """On-policy and at the reference: - sum over non-answer tokens of min(p / p_engine, cap) (A + b) log p."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        own = plain_logps(base, batch, temperature=0.7)
    engine = torch.zeros(batch.rollouts.completion_ids.shape, dtype=torch.float64)
    for row, logps in enumerate(own):
        engine[row, : len(logps)] = logps + 0.5 * torch.randn(len(logps), generator=generator)
    sampled = batch._replace(rollouts=batch.rollouts._replace(logps=engine))
    settings = ("rollout.engine=vllm", "rollout.importance_cap=1.2", "rollout.temperature=0.7")
    config = make_config("actor.grad_clip=1e9", "actor.ppo_micro_batch_size_per_gpu=3", *settings)
    policy, stats = stepped(base, config, sampled, steps=1)

    wanted = clone(base)
    loss = torch.zeros((), dtype=torch.float64)
    ratios = []
    for row, logps in enumerate(plain_logps(wanted, batch, temperature=0.7)):
        ratio = (own[row] - engine[row, : len(logps)]).exp()
        outside = ~batch.answer_mask[row][batch.rollouts.completion_mask[row]]
        weighted = ratio.clamp(max=1.2) * (batch.advantages[row] + batch.bonuses[row]) * logps
        loss = loss - weighted[outside].sum()
        ratios.append(ratio)
    (loss / batch.rollouts.num_tokens).backward()  # type: ignore[no-untyped-call]
    for ours, theirs in zip(policy.model.parameters(), wanted.model.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-8)
    ratio = torch.cat(ratios)
    assert stats.mismatch == pytest.approx(
        {
            "logp_diff_mean": ratio.log().abs().mean().item(),
            "logp_diff_max": ratio.log().abs().max().item(),
            "importance_mean": ratio.clamp(max=1.2).mean().item(),
            "importance_clipped": (ratio > 1.2).double().mean().item(),
        }
    )
    assert 0.1 < stats.mismatch["importance_clipped"] < 0.9

    uncapped = make_config("actor.grad_clip=1e9", "rollout.engine=vllm", "rollout.temperature=0.7")
    plain, stats = stepped(base, uncapped, sampled, steps=1)
    assert set(stats.mismatch) == {"logp_diff_mean", "logp_diff_max"}
    without, bare = stepped(base, uncapped, batch, steps=1)
    assert bare.mismatch == {}
    for ours, theirs in zip(plain.model.parameters(), without.model.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)  # recorded, not used


def test_without_kl_there_is_no_reference(base: Policy, batch: ScoredRollouts, make_config: MakeConfig) -> None:
    updater = Updater(clone(base), make_config("actor.kl_loss_coef=0"), total_steps=2)
    assert updater.reference is None
    assert updater.step(batch).kl == 0.0


def test_a_gradient_that_is_not_finite_leaves_the_weights(
    base: Policy, batch: ScoredRollouts, make_config: MakeConfig
) -> None:
    policy = clone(base)
    updater = Updater(policy, make_config(), total_steps=2)
    advantages = batch.advantages.clone()
    advantages[3] = float("inf")
    with pytest.raises(FloatingPointError, match=r"gradient is not finite .* Lower actor\.optim\.lr"):
        updater.step(batch._replace(advantages=advantages))
    for after, before in zip(policy.model.parameters(), base.model.parameters(), strict=True):
        assert torch.equal(after, before)


def test_the_gradient_is_clipped(base: Policy, batch: ScoredRollouts, make_config: MakeConfig) -> None:
    policy, stats = stepped(base, make_config("actor.grad_clip=0.001"), batch, steps=1)
    clipped = torch.stack([p.grad.norm() for p in policy.model.parameters() if p.grad is not None]).norm()
    assert stats.grad_norm > 0.01  # reported before clipping
    assert clipped.item() == pytest.approx(0.001, rel=1e-3)


@pytest.mark.parametrize("mode", ["policy", "all"])
def test_entropy_is_the_mean_over_tokens_of_each_kind(
    mode: str, base: Policy, batch: ScoredRollouts, make_config: MakeConfig
) -> None:
    _, stats = stepped(base, make_config(f"exploration.answer_mask_mode={mode}"), batch, steps=1)
    rollouts = batch.rollouts
    groups: dict[str, list[torch.Tensor]] = {"all": [], "correct": [], "incorrect": []}
    for row in range(7):
        prompt = rollouts.prompt_ids[row][rollouts.prompt_mask[row]]
        mask = rollouts.completion_mask[row]
        with torch.no_grad():
            logits = base.model(torch.cat([prompt, rollouts.completion_ids[row][mask]])[None]).logits
        logps = torch.log_softmax(logits[0, len(prompt) - 1 : -1], dim=-1)
        entropy = -(logps.exp() * logps).sum(dim=-1)
        if mode == "all":
            entropy = entropy[~batch.answer_mask[row][mask]]
        groups["all"].append(entropy)
        groups["correct" if batch.correct[row] else "incorrect"].append(entropy)
    expected = {name: torch.cat(parts).mean().item() for name, parts in groups.items()}
    assert stats.entropy == pytest.approx(expected, rel=1e-5)
    only_wrong = batch._replace(correct=torch.zeros(7, dtype=torch.bool))
    _, stats = stepped(base, make_config(), only_wrong, steps=1)
    assert set(stats.entropy) == {"all", "incorrect"}


def test_the_schedule_is_followed(base: Policy, batch: ScoredRollouts, make_config: MakeConfig) -> None:
    updater = Updater(clone(base), make_config("actor.optim.lr_warmup_steps=2"), total_steps=4)
    assert [updater.step(batch).lr for _ in range(4)] == pytest.approx([0.0, LR / 2, LR, LR])


def test_a_small_step_in_bfloat16_changes_the_weights(batch: ScoredRollouts, make_config: MakeConfig) -> None:
    """Weights in bfloat16 would round most of a step of 1e-6 away."""
    policy = Policy.load(ModelConfig(path="embedded", device="cpu", dtype="bfloat16"))
    before = [parameter.clone() for parameter in policy.model.parameters()]
    Updater(policy, make_config("actor.optim.lr=1e-6"), total_steps=2).step(batch)
    changed = [(after != old)[after.grad != 0] for after, old in zip(policy.model.parameters(), before, strict=True)]
    assert torch.cat(changed).float().mean() > 0.95


def test_bfloat16_follows_the_gradient_of_float32(base: Policy, batch: ScoredRollouts, make_config: MakeConfig) -> None:
    policies = [Policy(copy.deepcopy(base.model).float(), base.tokenizer, dtype) for dtype in (FLOAT, BFLOAT)]
    stats = [Updater(policy, make_config("actor.grad_clip=1e9"), 2).step(batch) for policy in policies]
    full, half = (torch.cat([p.grad.flatten() for p in policy.model.parameters()]) for policy in policies)
    assert {p.grad.dtype for p in policies[1].model.parameters()} == {torch.float32}
    assert 0 < (half - full).norm() / full.norm() < 0.05
    assert stats[1].loss == pytest.approx(stats[0].loss, rel=0.05, abs=0.01)
    assert stats[1].kl == pytest.approx(0, abs=1e-9)  # policy and reference round alike


@pytest.mark.parametrize("schedule", ["constant_with_warmup", "cosine", "linear"])
def test_a_restored_updater_goes_on_bit_for_bit(
    schedule: str, base: Policy, batch: ScoredRollouts, make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(f"actor.optim.lr_scheduler_type={schedule}")
    one = clone(base)
    first = Updater(one, config, total_steps=5)
    first.step(batch)
    torch.save(first.state_dict(), tmp_path / "state.pt")
    two = clone(one)
    second = Updater(two, config, total_steps=5)
    second.reference = first.reference
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for _ in range(2):
        left, right = first.step(batch), second.step(batch)
        assert left.lr == right.lr
        assert left.loss == right.loss
    for ours, theirs in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
