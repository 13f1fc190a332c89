"""Advantage estimators against their papers, written here a second time from sets and loops, and their properties."""

import math
from collections import Counter
from itertools import combinations, product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outcome_rl_kernels import Groups, OutcomeCounts, group_advantages, register_adv_estimator
from outcome_rl_kernels.advantages import estimators
from outcome_rl_kernels.advantages.estimators import ADV_ESTIMATORS, parse_adv_estimator

F64 = torch.float64
EPS = 1e-6
ALL = ["grpo", "dr_grpo", "rloo", "maxrl", "pass_at_k(k=2)", "pkpo(k=2)", "unlikeliness", "majority", "edas"]

# Answers, of which 1 is correct and 0 is none; rewards of correct ones; log-probabilities.
sample = st.tuples(st.integers(0, 4), st.floats(0.01, 1.0), st.floats(-9, 0, width=16))
groups_of = st.integers(2, 7).flatmap(lambda n: st.lists(sample, min_size=n, max_size=n))


def estimate(estimator: str, rewards: list[float], answers: list[int] | None = None, **more: Any) -> list[float]:
    keys = [1 if reward > 0 else 2 for reward in rewards] if answers is None else answers
    logps = more.pop("logps", None)
    result = group_advantages(
        torch.tensor([rewards], dtype=more.pop("dtype", F64)),
        torch.tensor([7]),
        torch.tensor([keys]),
        adv_estimator=estimator,
        bonus="none",
        logps=None if logps is None else torch.tensor([logps], dtype=F64),
        **more,
    )
    found: list[float] = result.advantages[0].tolist()
    return found


def standardised(rewards: list[float]) -> list[float]:
    mean = sum(rewards) / len(rewards)
    std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
    return [0.0 if max(rewards) == min(rewards) else (r - mean) / (std + EPS) for r in rewards]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # mean 1/4, squared deviations 9/16 + 3/16 = 3/4: sample variance 1/4, population variance 3/16
        ({"eps": 0.0}, [1.5, -0.5, -0.5, -0.5]),
        ({"eps": 0.0, "ddof": 0}, [3 / math.sqrt(3), *[-1 / math.sqrt(3)] * 3]),
        ({"eps": 0.5}, [0.75, -0.25, -0.25, -0.25]),
        ({"scale": "none"}, [0.75, -0.25, -0.25, -0.25]),
    ],
)
def test_one_of_four_correct(options: dict[str, Any], expected: list[float]) -> None:
    assert estimate("grpo", [1.0, 0.0, 0.0, 0.0], **options) == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, F64])
@pytest.mark.parametrize("eps", [0.0, 1e-6])
@settings(deadline=None, max_examples=30)
@given(reward=st.floats(-100, 100, width=16), n=st.integers(1, 300))
def test_equal_rewards_give_exact_zero(dtype: torch.dtype, eps: float, reward: float, n: int) -> None:
    """The plain mean of three times 0.1 is not 0.1 in binary, and rounding noise would be divided by eps."""
    for estimator in ("grpo", "dr_grpo", "rloo"):
        assert estimate(estimator, [reward / 10] * n, dtype=dtype, eps=eps) == [0.0] * n


@settings(deadline=None, max_examples=50)
@given(groups_of)
def test_baselines(group: list[tuple[int, float, float]]) -> None:
    rewards = [reward if answer == 1 else 0.0 for answer, reward, _ in group]
    n, mean = len(rewards), sum(rewards) / len(rewards)
    assert estimate("grpo", rewards) == pytest.approx(standardised(rewards), abs=1e-9)
    assert estimate("dr_grpo", rewards) == pytest.approx([r - mean for r in rewards], abs=1e-12)
    others = [sum(rewards[:i] + rewards[i + 1 :]) / (n - 1) for i in range(n)]
    assert estimate("rloo", rewards) == pytest.approx([r - b for r, b in zip(rewards, others, strict=True)], abs=1e-12)
    assert estimate("maxrl", rewards) == pytest.approx([(r - mean) / (mean + EPS) for r in rewards], abs=1e-12)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.booleans(), min_size=2, max_size=8), st.data())
def test_pass_at_k_is_the_mean_over_the_sets_that_hold_the_sample(verdicts: list[bool], data: st.DataObject) -> None:
    """Section 2 of the paper: a set of k samples earns 1 if one of them is correct, and shares its standardised reward
    with each of them.
    """
    n, k = len(verdicts), data.draw(st.integers(1, len(verdicts)))
    sets = {chosen: float(any(verdicts[i] for i in chosen)) for chosen in combinations(range(n), k)}
    mean = sum(sets.values()) / len(sets)
    scale = math.sqrt(mean * (1 - mean)) + EPS
    expected = []
    for i in range(n):
        holding = [reward for chosen, reward in sets.items() if i in chosen]
        expected.append((sum(holding) / len(holding) - mean) / scale)
    assert estimate(f"pass_at_k(k={k})", list(map(float, verdicts))) == pytest.approx(expected, abs=1e-9)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-2, 2, width=32), min_size=2, max_size=7), st.data())
def test_pkpo_is_its_definition_over_sets(rewards: list[float], data: st.DataObject) -> None:
    """Equation 33 of the paper."""
    n, k = len(rewards), data.draw(st.integers(2, len(rewards)))
    expected = [0.0] * n
    for chosen in combinations(range(n), k):
        for i in chosen:
            gain = max(rewards[j] for j in chosen) - max(rewards[j] for j in chosen if j != i)
            expected[i] += gain / math.comb(n, k)
    assert estimate(f"pkpo(k={k})", rewards) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("n", "k"), [(2, 2), (5, 3), (6, 2)])
@pytest.mark.parametrize("p", [0.1, 0.6])
def test_pkpo_is_the_gradient_of_pass_at_k(n: int, k: int, p: float) -> None:
    """The expectation of sum_i s_i d log pi(x_i) / dp over all groups of a policy that is right with probability p."""
    total = 0.0
    for sample in product((0.0, 1.0), repeat=n):
        advantages = estimate(f"pkpo(k={k})", list(sample))
        score = sum(a * (1 / p if r else -1 / (1 - p)) for a, r in zip(advantages, sample, strict=True))
        total += math.prod(p if r else 1 - p for r in sample) * score
    assert total == pytest.approx(k * (1 - p) ** (k - 1))


def test_pkpo_of_a_large_group() -> None:
    """n = 256 and k = 128: C(n, k) is 1e75, beyond float32."""
    rewards = [1.0] + [0.0] * 255
    found = estimate("pkpo(k=128)", rewards, dtype=torch.float32)
    assert found == pytest.approx([0.5] + [0.0] * 255)  # the one correct sample is in half of the sets


@settings(deadline=None, max_examples=50)
@given(groups_of)
def test_unlikeliness(group: list[tuple[int, float, float]]) -> None:
    """r (1 - beta (G - rank) / G), rank 1 for the most likely sample."""
    rewards, logps = [reward for _, reward, _ in group], [logp + i / 64 for i, (_, _, logp) in enumerate(group)]
    n = len(group)
    ranks = [1 + sorted(range(n), key=lambda i: (-logps[i], -i)).index(i) for i in range(n)]
    expected = standardised([r * (1 - 0.4 * (n - rank) / n) for r, rank in zip(rewards, ranks, strict=True)])
    assert estimate("unlikeliness(beta=0.4)", rewards, logps=logps) == pytest.approx(expected, abs=1e-6)


@settings(deadline=None, max_examples=50)
@given(groups_of)
def test_majority_reads_neither_rewards_nor_verdicts(group: list[tuple[int, float, float]]) -> None:
    answers, rewards = [answer for answer, _, _ in group], [reward for _, reward, _ in group]
    votes = Counter(answer for answer in answers if answer != 0)
    label = votes.most_common(1)[0][0] if votes else None
    expected = standardised([float(answer == label) for answer in answers])
    assert estimate("majority", rewards, answers) == pytest.approx(expected, abs=1e-9)


@settings(deadline=None, max_examples=50)
@given(groups_of, st.floats(0, 1), st.floats(0, 1), st.floats(1.01, 4))
def test_edas(group: list[tuple[int, float, float]], alpha: float, beta: float, kappa: float) -> None:
    answers = [answer for answer, _, _ in group]
    rewards = [float(answer == 1) for answer in answers]
    base = standardised(rewards)
    wrong = [i for i, answer in enumerate(answers) if answer != 1]
    shares = {key: votes / len(wrong) for key, votes in Counter(answers[i] for i in wrong).items()}
    entropy = -sum(p * math.log(p) for p in shares.values())
    expected = list(base)
    for i in wrong:
        size = sum(abs(base[j]) for j in wrong) / len(wrong)
        if len(wrong) > 1:
            surprisal = -math.log(shares[answers[i]])
            shift = -beta * size if len(shares) == 1 else alpha * size * (surprisal - entropy) / math.log(len(wrong))
            expected[i] += math.copysign(min(abs(shift), abs(base[i]) / kappa), shift)
    found = estimate(f"edas(alpha={alpha}, beta={beta}, kappa={kappa})", rewards, answers)
    assert found == pytest.approx(expected, abs=1e-9)
    assert all(f * b >= 0 for f, b in zip(found, base, strict=True))  # no sign changes
    if len(shares) > 1 and alpha * kappa <= 1:
        assert sum(found) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("estimator", ALL)
@settings(deadline=None, max_examples=15)
@given(groups=st.lists(st.lists(sample, min_size=4, max_size=4), min_size=1, max_size=3))
def test_groups_dtypes_and_bonuses_are_independent(estimator: str, groups: Any) -> None:
    """A group's advantages do not depend on other groups; float32 follows float64; bonuses and counts are as ever."""
    columns = torch.tensor(groups, dtype=F64).permute(2, 0, 1)
    keys, logps = columns[0].long(), columns[2]
    rewards = columns[1] * (keys == 1)
    questions = torch.arange(len(groups))
    counts, oracle = OutcomeCounts(), OutcomeCounts()
    options: dict[str, Any] = {"bonus": "ucb+batch", "logps": logps}
    got = group_advantages(rewards, questions, keys, counts, adv_estimator=estimator, **options)
    plain = group_advantages(rewards, questions, keys, oracle, **options)
    assert torch.equal(got.bonuses, plain.bonuses)
    assert all(map(torch.equal, counts.items(), oracle.items()))
    single = group_advantages(rewards.float(), questions, keys, counts, adv_estimator=estimator, **options)
    assert single.advantages.dtype == torch.float32
    torch.testing.assert_close(single.advantages.double(), got.advantages, atol=2e-3, rtol=2e-3)
    for row in range(len(groups)):
        alone = estimate(estimator, rewards[row].tolist(), keys[row].tolist(), logps=logps[row].tolist())
        assert alone == pytest.approx(got.advantages[row].tolist(), abs=1e-12)


@pytest.mark.parametrize("estimator", [name for name in ALL if name != "unlikeliness"])
@pytest.mark.parametrize("reward", [0.0, 0.1, 1.0])
def test_a_group_of_equal_samples_gets_exactly_zero(estimator: str, reward: float) -> None:
    assert estimate(estimator, [reward] * 3, dtype=torch.float32) == [0.0] * 3


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo", "maxrl", "pass_at_k(k=1)", "majority", "edas"])
def test_a_group_of_one(estimator: str) -> None:
    assert estimate(estimator, [1.0]) == [0.0]


def test_correctness_may_differ_from_the_reward() -> None:
    """`pass_at_k` and `edas` ask who is correct: a format reward does not make a wrong answer right."""
    verdicts = torch.tensor([[True, False, False]])
    shaped = estimate("pass_at_k(k=2)", [1.1, 0.1, 0.0], correct=verdicts)
    assert shaped == estimate("pass_at_k(k=2)", [1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("gae", "adv_estimator must be one of 'grpo', 'dr_grpo'.*got 'gae'"),
        ("pass_at_k", r"takes \(\*?,? ?k: int\).*missing a required"),
        ("pass_at_k(4)", "by name"),
        ("pkpo(k=2, eps=1)", "unexpected"),
        ("pkpo(k=)", "takes"),
        ("rloo(k=2)", "unexpected"),
        ("edas(alpha='a')", "by name"),
        ("rloo; print(1)", "must be one of"),
    ],
)
def test_what_is_no_estimator(text: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        parse_adv_estimator(text)


@pytest.mark.parametrize(
    ("estimator", "match"),
    [
        ("pass_at_k(k=3)", "k of adv_estimator 'pass_at_k' must be an integer from 1 to n=2"),
        ("pkpo(k=1)", "from 2 to n=2"),
        ("pkpo(k=2.0)", "integer"),
        ("unlikeliness", "logps"),
        ("edas(kappa=1)", "kappa"),
        ("maxrl", "maxrl takes no negative rewards"),
    ],
)
def test_refused_calls_count_nothing(estimator: str, match: str) -> None:
    counts = OutcomeCounts()
    with pytest.raises(ValueError, match=match):
        group_advantages(
            torch.tensor([[1.0, -1.0]]), torch.tensor([7]), torch.tensor([[1, 2]]), counts, adv_estimator=estimator
        )
    assert len(counts) == 0


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the registry as it was."""
    monkeypatch.setattr(estimators, "ADV_ESTIMATORS", dict(ADV_ESTIMATORS))


@pytest.mark.usefixtures("registry")
def test_own_estimator_takes_numbers_and_builds_on_others() -> None:
    @register_adv_estimator("halved")
    def halved(groups: Groups, *, factor: float = 0.5) -> torch.Tensor:
        return estimators.grpo(groups) * factor

    plain = estimate("grpo", [1.0, 0.0, 0.0])
    assert estimate("halved", [1.0, 0.0, 0.0]) == [a / 2 for a in plain]
    assert estimate("halved(factor=-2)", [1.0, 0.0, 0.0]) == [a * -2 for a in plain]

    @register_adv_estimator("column")
    def column(groups: Groups) -> torch.Tensor:
        return groups.rewards[:, :1]

    with pytest.raises(ValueError, match=r"column.* shape of rewards, \(1, 3\); got \(1, 1\)"):
        estimate("column", [1.0, 0.0, 0.0])


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("name", ["rloo", "two words", "a+b"])
def test_names_that_cannot_be_registered(name: str) -> None:
    with pytest.raises(ValueError, match="must be a new name"):
        register_adv_estimator(name)(lambda groups: groups.rewards)
