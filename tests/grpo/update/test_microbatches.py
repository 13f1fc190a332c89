"""Packing, shared prefixes, padding and compilation change how a batch is computed, and nothing else."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from grpo_runs import MakeConfig, Sample, assert_same_update, clone, columns, updater_of

from outcome_rl.grpo.model.policy import Policy

ALL = "actor.ppo_max_token_len_per_gpu=4096"
FEW = "actor.ppo_max_token_len_per_gpu=32"


@pytest.mark.parametrize(
    ("settings", "loss_agg_mode", "answer_mask_mode"),
    [
        (("actor.use_prefix_grouper=false",), "token-sum", "policy"),
        (("actor.ppo_max_token_len_per_gpu=32",), "token-mean", "all"),
        # Parts a group: its prompt is computed in both parts.
        (("actor.ppo_max_token_len_per_gpu=64",), "seq-mean-token-sum", "bonus"),
        ((FEW,), "seq-mean-token-mean", "all"),
        ((FEW, "actor.use_prefix_grouper=false"), "seq-mean-token-sum-norm", "none"),
    ],
    ids=["own prompts", "few", "parts", "few tokens", "few tokens, own prompts"],
)
def test_packing_changes_nothing(
    settings: tuple[str, ...],
    loss_agg_mode: str,
    answer_mask_mode: str,
    base: Policy,
    grouped: list[Sample],
    make_config: MakeConfig,
) -> None:
    """Compare one packed row with shared prompts with several rows, and with rows without sharing."""
    modes = (f"actor.loss_agg_mode={loss_agg_mode}", f"exploration.answer_mask_mode={answer_mask_mode}")
    several = ("actor.loss_mode=gspo", "actor.ppo_epochs=2", "actor.entropy_coeff=0.01", "actor.optim.lr=1e-6")
    found = []
    for more in ((ALL,), settings):
        updater = updater_of(clone(base), make_config(*several, *modes, *more), total_steps=10)
        found += [updater, updater.step(columns(grouped))]
    assert_same_update(*found)
    assert found[1]["actor/ratio_mean"] != 1
    assert found[1]["actor/kl"] > 0


def test_padding_instead_of_packing_changes_nothing(
    base: Policy, grouped: list[Sample], make_config: MakeConfig
) -> None:
    updater = updater_of(clone(base), make_config(ALL), total_steps=10)
    stats = updater.step(columns(grouped))
    padding = clone(base)
    padding.model.set_attn_implementation("sdpa")
    assert not padding.packs
    other = updater_of(padding, make_config(ALL), total_steps=10)
    assert_same_update(updater, stats, other, other.step(columns(grouped)))


def test_a_batch_without_tokens_changes_nothing(base: Policy, grouped: list[Sample], make_config: MakeConfig) -> None:
    nothing = [replace(sample, rollout=sample.rollout._replace(token_ids=[]), answer_span=(0, 0)) for sample in grouped]
    updater = updater_of(clone(base), make_config("actor.optim.weight_decay=0"), total_steps=10)
    stats = updater.step(columns(nothing))
    assert (stats["actor/loss"], stats["actor/kl"], stats["actor/grad_norm"]) == (0, 0, 0)
    assert not any(name.startswith("entropy/") for name in stats)
    assert torch.equal(updater.policy.head.weight, base.head.weight)


def test_shared_prefixes_are_computed_once(base: Policy, grouped: list[Sample], make_config: MakeConfig) -> None:
    policy = clone(base)
    computed: list[int] = []
    policy.model.get_decoder().register_forward_hook(lambda _, __, output: computed.append(output[0].shape[1]))
    rollouts = [sample.rollout for sample in grouped]
    whole = [[*r.prompt_ids, *r.token_ids[:-1]] for r in rollouts if r.token_ids]  # the last token predicts nothing
    beginnings = {tuple(tokens[:end]) for tokens in whole for end in range(1, len(tokens) + 1)}
    every = sum(map(len, whole))
    lengths = [len(rollout.prompt_ids) for rollout in rollouts]
    assert len(beginnings) < every - sum(lengths) + sum(lengths[::3]) + lengths[4]
    for share, tokens in (("true", len(beginnings)), ("false", every)):
        computed.clear()
        updater_of(policy, make_config(ALL, f"actor.use_prefix_grouper={share}"), total_steps=10).step(columns(grouped))
        assert computed == [tokens] * 2  # reference and policy


@pytest.mark.slow
def test_compilation_changes_nothing(
    base: Policy, grouped: list[Sample], make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trace forward and backward; generating code would take PyTorch a minute."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    settings = ("actor.ppo_max_token_len_per_gpu=128",)
    base = clone(base)
    base.model.model.layers = base.model.model.layers[:1]
    base.model.config.num_hidden_layers = 1
    updater = updater_of(clone(base), make_config(*settings), total_steps=10)
    stats = updater.step(columns(grouped))
    other = updater_of(clone(base), make_config(*settings, "actor.use_torch_compile=true"), total_steps=10)
    assert_same_update(updater, stats, other, other.step(columns(grouped)))


def test_a_mini_batch_without_trained_responses_is_left_out(grouped: list[Sample], make_config: MakeConfig) -> None:
    settings = ("rollout.n=3", "actor.ppo_mini_batch_size=1")
    trained = [replace(sample, trained=row >= 3) for row, sample in enumerate(grouped)]
    updates = []
    for batch in (trained, grouped[3:]):
        updater = updater_of(Policy.load(make_config().model), make_config(*settings), 10)
        updates += [updater, updater.step(columns(batch))]
    assert_same_update(*updates)


def test_an_untrained_response_equals_an_empty_one(grouped: list[Sample], make_config: MakeConfig) -> None:
    masked = [
        replace(sample, rollout=sample.rollout._replace(token_ids=[])) if row in (0, 5) else sample
        for row, sample in enumerate(grouped)
    ]
    untrained = [replace(sample, trained=row not in (0, 4, 5)) for row, sample in enumerate(grouped)]
    updates = []
    for batch in (masked, untrained):
        updater = updater_of(Policy.load(make_config().model), make_config("rollout.n=3"), 10)
        updates += [updater, updater.step(columns(batch))]
    assert_same_update(*updates)
