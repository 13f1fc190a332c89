"""The benchmark's inputs are what their description says."""

from pathlib import Path

import pytest
import torch

from bench import cases
from bench.baselines import BASELINES
from bench.cases import Spec, make_case, only_kept
from bench.responses import Source, sample_responses
from outcome_rl.grpo.config.schema import ModelConfig
from outcome_rl.grpo.model.policy import Policy

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def tiny_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cases.MODELS, "tiny", (32, 257))


def tiny(**settings: object) -> Spec:
    return Spec(model="tiny", dtype=torch.float32, **settings)


def rl_spec(**settings: object) -> Spec:
    return tiny(tokens=2000, scale=0.1, beta=0.0, **settings)


def test_equal_seeds_give_equal_cases() -> None:
    spec = Spec(model="tiny", dtype=torch.bfloat16, sequences=4, length=8)
    first, again, other = make_case(spec, CPU), make_case(spec, CPU), make_case(spec, CPU, seed=1)
    assert torch.equal(first.hidden, again.hidden)
    assert torch.equal(first.batch.labels, again.batch.labels)
    assert not torch.equal(first.hidden, other.hidden)


def test_a_packed_and_a_padded_micro_batch_hold_the_same_sequences() -> None:
    packed, padded = make_case(rl_spec(layout="packed"), CPU), make_case(rl_spec(layout="padded"), CPU)
    cu_seqlens = packed.batch.cu_seqlens
    assert cu_seqlens.diff().tolist() == padded.batch.mask.sum(dim=1).tolist()
    assert len(packed.hidden) == int(padded.batch.mask.sum()) <= 2000
    assert len(padded.hidden) > len(packed.hidden)
    assert cu_seqlens.diff().max() <= cases.LONGEST * 0.1 + 1


@pytest.mark.parametrize("dead", [0.2, 0.45])
def test_dead_tokens_are_the_share_that_was_asked_for(dead: float) -> None:
    case = make_case(rl_spec(layout="packed", dead=dead), CPU)
    share = (case.batch.advantages_N == 0).float().mean().item()
    longest = case.batch.cu_seqlens.diff().max().item() / len(case.hidden)
    assert dead - longest <= share <= dead
    assert not (make_case(rl_spec(layout="packed"), CPU).batch.advantages == 0).any()


@pytest.mark.parametrize("nats", [0.1, 0.46, 2.2])
def test_rows_like_a_language_models_have_the_entropy_and_a_heavy_tail(
    nats: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cases.MODELS, "tiny", (256, 8000))
    case = make_case(tiny(sequences=8, length=128, nats=nats), CPU)
    assert 0.6 * nats < case.entropy < 1.5 * nats
    logps_NV = (case.hidden @ case.weight.t()).double().log_softmax(dim=-1)
    drawn_N = -logps_NV.gather(1, case.batch.labels_N[:, None])
    assert float(drawn_N.mean()) == pytest.approx(case.entropy, rel=0.35)  # labels are drawn from the rows
    entropies_N = torch.special.entr(logps_NV.exp()).sum(dim=-1)
    assert entropies_N.min() < 0.1
    assert entropies_N.max() > 2
    open_p = logps_NV[entropies_N.argmax()].exp().sort(descending=True).values
    assert open_p[10:].sum() > 0.1


@pytest.mark.parametrize("logits", ["random", "peaked"])
def test_peaked_rows_have_low_entropy_and_random_rows_do_not(logits: str) -> None:
    case = make_case(tiny(sequences=8, length=32, logits=logits), CPU)
    probabilities = (case.hidden @ case.weight.t()).softmax(dim=-1)
    most_likely = probabilities.max(dim=-1).values.median()
    assert (most_likely > 0.9) == (logits == "peaked")


def test_no_off_policy_ratio_is_near_a_clip_bound_and_both_sides_occur() -> None:
    case = make_case(tiny(sequences=8, length=32), CPU)
    batch = case.off_policy
    logps = (case.hidden @ case.weight.t()).log_softmax(dim=-1).gather(1, batch.labels_N[:, None])[:, 0]
    ratios = (logps - batch.old_logps.view(-1)).exp()
    assert ((ratios - 0.8).abs() > 0.05).all()
    assert ((ratios - 1.2).abs() > 0.05).all()
    assert (ratios < 0.8).any()
    assert (ratios > 1.2).any()


def test_cross_entropy_is_the_same_batch_with_unit_advantages() -> None:
    case = make_case(rl_spec(layout="padded", dead=0.2), CPU)
    plain = case.batch.as_cross_entropy()
    assert (plain.advantages == 1).all()
    assert plain.labels is case.batch.labels
    loss = BASELINES[1].loss(case.hidden, case.weight, plain)  # each ratio is 1: the loss is -1 wherever the mask is
    torch.testing.assert_close(loss, torch.tensor(-1.0))


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """The toy policy, with a chat template."""
    policy = Policy.load(ModelConfig(path="toy", device="cpu", dtype="float32"))
    policy.tokenizer.chat_template = "{{ messages[0]['content'] }}"
    policy.save(tmp_path)
    return Source(tmp_path, ("12 + 3", "4 * 5"))


@pytest.mark.parametrize("temperature", [0.5, 1.5])
def test_sampled_cases_hold_the_states_that_drew_their_labels(source: Source, temperature: float) -> None:
    spec = tiny(sequences=4, length=6, layout="packed", temperature=temperature, top_p=0.9, source=source)
    case = make_case(spec, CPU)
    support = case.batch.support
    assert case.batch.cu_seqlens[-1] == len(case.hidden) == len(case.batch.labels)
    logps_NV = (case.hidden @ case.weight.t()).log_softmax(dim=-1)
    for row, label in enumerate(case.batch.labels.tolist()):
        kept = support.token_ids[support.offsets[row] : support.offsets[row + 1]]
        assert label in kept.tolist()
        assert len(kept.unique()) == len(kept)
        # The smallest set of the likeliest tokens with nine tenths, up to what bfloat16 rounds.
        mass = logps_NV[row, kept].exp()
        assert mass.sum() > 0.88
        assert mass.sum() - mass.min() < 0.92
    logits = torch.randn(case.batch.kept_NK.shape[0], case.weight.shape[0], requires_grad=True)
    only_kept(logits, case.batch.kept_NK).softmax(dim=-1)[:, 0].sum().backward()  # padding has no part in it
    plain = logits.detach().clone().requires_grad_()
    for row in range(len(plain)):
        kept = support.token_ids[support.offsets[row] : support.offsets[row + 1]]
        whole = torch.full_like(plain[row], -torch.inf).index_put((kept,), plain[row, kept])
        whole.softmax(dim=-1)[0].backward()
    torch.testing.assert_close(logits.grad, plain.grad)
    first = sample_responses(source, 4, 6, temperature, 0.9, CPU, seed=0)
    assert torch.equal(first.labels_N, case.batch.labels)
