"""group_advantages: counting before the batch, options, its implementations against the reference, and errors that
leave the counts alone.

Without a GPU the Triton kernel is interpreted on CPU tensors, a program at a time: its cases have few groups.
"""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outcome_rl_kernels import OutcomeCounts, group_advantages, parse_bonus
from outcome_rl_kernels.advantages import api
from outcome_rl_kernels.advantages.reference import GroupSettings, exploration_bonuses
from outcome_rl_kernels.backends import native_obstacle, triton_obstacle

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
NO_TRITON = triton_obstacle(DEVICE)
FAST = [
    pytest.param("native", marks=pytest.mark.skipif(native_obstacle() is not None, reason=str(native_obstacle()))),
    pytest.param("triton", marks=pytest.mark.skipif(NO_TRITON is not None, reason=f"Triton: {NO_TRITON}")),
]

QUESTIONS = torch.tensor([11, 22])
OUTCOMES = torch.tensor([[1, 1, 2, 0], [1, 3, 3, 3]])
REWARDS = torch.tensor([[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 1.0]])


def call(counts: OutcomeCounts | None = None, **kwargs: Any) -> Any:
    return group_advantages(REWARDS, QUESTIONS, OUTCOMES, counts, **kwargs)


def test_two_steps_by_hand() -> None:
    counts = OutcomeCounts()
    first = call(counts, bonus="ucb", coef=0.5)
    assert first.counts.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0]]
    assert first.bonuses.tolist() == [[0.5, 0.5, 0.5, 0.0], [0.5, 0.5, 0.5, 0.5]]
    torch.testing.assert_close(first.advantages[0], torch.tensor([-0.5, -0.5, 1.5, -0.5]), atol=1e-5, rtol=0)
    second = call(counts, bonus="ucb", coef=0.5)
    assert second.counts.tolist() == [[2, 2, 1, 1], [1, 3, 3, 3]]
    torch.testing.assert_close(second.bonuses[1], 0.5 * torch.tensor([1.0, 3**-0.5, 3**-0.5, 3**-0.5]))
    assert len(counts) == 5  # no answer is counted too


def test_a_question_in_two_groups_sees_the_same_counts() -> None:
    counts = OutcomeCounts()
    outcomes = torch.tensor([[5, 5], [5, 6]])
    result = group_advantages(torch.zeros(2, 2), torch.tensor([7, 7]), outcomes, counts)
    assert result.counts is not None
    assert result.counts.tolist() == [[0, 0], [0, 0]]
    assert counts.lookup(torch.tensor([7, 7]), outcomes).tolist() == [[3, 3], [3, 1]]


def test_update_false_only_reads() -> None:
    counts = OutcomeCounts()
    call(counts)
    again = call(counts, update=False)
    assert again.counts is not None
    assert torch.equal(again.counts, call(counts, update=False).counts)


def test_all_correct_defaults_to_positive_rewards_and_can_be_given() -> None:
    ones = torch.ones(1, 2)
    keys = torch.tensor([[4, 9]])
    args = (ones, torch.tensor([1]), keys)
    assert group_advantages(*args, OutcomeCounts(), bonus="ucb_con").bonuses.tolist() == [[0, 0]]
    wrong = torch.zeros(1, 2, dtype=torch.bool)
    with_format_reward = group_advantages(*args, OutcomeCounts(), bonus="ucb_con", coef=1.0, correct=wrong)
    assert with_format_reward.bonuses.tolist() == [[0.5, 0.5]]


def test_sum_of_methods() -> None:
    result = call(OutcomeCounts(), bonus="ucb_con+batch", coef=(1.0, 2.0), baseline=0.5)
    expected = torch.tensor([[0.5 - 0.5, 0.5 - 0.5, 0.5, -0.5], [0.5, 0.5 - 1, 0.5 - 1, 0.5 - 1]])
    torch.testing.assert_close(result.bonuses, expected)


def test_batch_needs_no_counts() -> None:
    result = call(bonus="batch", coef=1.0)
    assert result.counts is None
    assert result.bonuses[0].tolist() == [-0.25, -0.25, 0, 0]


def test_no_bonus_still_counts_for_the_statistics() -> None:
    counts = OutcomeCounts()
    assert not call(counts, bonus="none").bonuses.any()
    assert len(counts) == 5


def test_dtype_follows_the_rewards_and_carries_no_gradient() -> None:
    rewards = REWARDS.double().requires_grad_()
    result = group_advantages(rewards, QUESTIONS, OUTCOMES, OutcomeCounts())
    assert result.advantages.dtype == result.bonuses.dtype == torch.float64
    assert not result.advantages.requires_grad


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"bonus": "ucb_com"}, ValueError, "bonus must be one of 'none', 'ucb'"),
        ({"bonus": "ucb+none"}, ValueError, "'none' only alone"),
        ({"bonus": "ucb+ucb"}, ValueError, "name each method once"),
        ({"coef": -1.0}, ValueError, "coef must be finite and >= 0; got -1.0"),
        ({"coef": math.inf}, ValueError, "coef must be finite and >= 0; got inf"),
        ({"coef": (0.1, "x"), "bonus": "ucb+batch"}, TypeError, "coef must be a Python number; got str"),
        ({"coef": torch.tensor(0.1)}, TypeError, r"coef must be a Python number; got Tensor. Use coef\.item\(\)"),
        ({"baseline": math.nan}, ValueError, "baseline must be finite; got nan"),
        ({"baseline": None}, TypeError, "baseline must be a Python number; got NoneType"),
        ({"exponent": -0.5}, ValueError, "exponent must be finite and >= 0; got -0.5"),
        ({"eps": -1e-6}, ValueError, "eps must be finite and >= 0; got -1e-06"),
        ({"eps": "1e-6"}, TypeError, "eps must be a Python number; got str"),
        ({"zero_when_all_correct": "no"}, TypeError, "zero_when_all_correct must be True, False or None; got 'no'"),
        ({"coef": (1.0, 2.0)}, ValueError, "one for each of"),
        ({"scale": "mean"}, ValueError, "scale must be one of 'std', 'none'"),
        ({"ddof": 2}, ValueError, "ddof must be one of 0, 1"),
        ({"no_answer": "drop"}, ValueError, "no_answer must be"),
        (
            {"correct": torch.ones(2, 4)},
            TypeError,
            r"correct must have dtype bool; got float32\. Use correct\.bool\(\)",
        ),
        ({"impl": "cuda"}, ValueError, "impl must be one of 'auto', 'reference', 'native', 'triton'; got 'cuda'"),
    ],
)
def test_errors_leave_the_counts_alone(kwargs: dict[str, Any], error: type[Exception], message: str) -> None:
    counts = OutcomeCounts()
    with pytest.raises(error, match=message):
        call(counts, **kwargs)
    assert len(counts) == 0


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (
            (REWARDS.tolist(), QUESTIONS, OUTCOMES),
            TypeError,
            r"rewards must be a torch\.Tensor; got list\. Use torch\.as_tensor\(rewards\)",
        ),
        ((REWARDS.long(), QUESTIONS, OUTCOMES), TypeError, r"rewards must have dtype .*\. Use rewards\.float\(\)"),
        ((REWARDS[0], QUESTIONS, OUTCOMES), ValueError, r"rewards must have shape \(B, n\)"),
        ((REWARDS, QUESTIONS, OUTCOMES[:1]), ValueError, "outcome_keys must have the shape of rewards"),
        ((REWARDS, QUESTIONS[:1], OUTCOMES), ValueError, r"question_keys must have shape \(B,\) = \(2,\)"),
        (
            (REWARDS, QUESTIONS.int(), OUTCOMES),
            TypeError,
            r"question_keys must have dtype int64; got int32\. Use question_keys\.long\(\)",
        ),
    ],
)
def test_shapes_and_dtypes(args: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        group_advantages(*args, OutcomeCounts())


def test_history_without_counts() -> None:
    with pytest.raises(ValueError, match=r"needs counts; got None\. Make one OutcomeCounts\(rule="):
        call(bonus="ucb_con")


def test_counts_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match=r"counts must be an OutcomeCounts; got dict\. Use OutcomeCounts\(\)"):
        group_advantages(REWARDS, QUESTIONS, OUTCOMES, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("impl", ["reference", "auto"])
def test_rewards_that_are_not_finite_are_refused_before_anything_is_counted(impl: Any, bad: float) -> None:
    counts, rewards = OutcomeCounts(impl=impl), REWARDS.clone()
    rewards[1, 2] = bad
    with pytest.raises(ValueError, match=rf"rewards must be finite; got {bad} for sample 2 of group 1"):
        group_advantages(rewards, QUESTIONS, OUTCOMES, counts)
    assert len(counts) == 0


def test_parse_bonus() -> None:
    assert parse_bonus("ucb_con + batch") == ("ucb_con", "batch")


# --- implementations ---


def device_of(impl: str) -> torch.device:
    return DEVICE if impl == "triton" else torch.device("cpu")


def groups(B: int, n: int, seed: int, impl: str, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Rewards of several kinds of groups, questions that repeat, and outcomes of which some are no answer."""
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.rand(B, n, generator=generator)
    rewards[::4] = (rewards[::4] < 0.5).float()
    rewards[1::4] = 0.1  # equal, and their mean is not
    questions = torch.randint(0, max(B // 2, 1), (B,), generator=generator)
    outcomes = torch.randint(-1, 4, (B, n), generator=generator)
    return tuple(tensor.to(device_of(impl)) for tensor in (rewards.to(dtype), questions, outcomes))


def twins(impl: Any) -> tuple[OutcomeCounts, OutcomeCounts]:
    """A table of this implementation and the reference's, which have the same counts."""
    seen = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 2, 3]), torch.tensor([3, 1, 10**6, 5])
    counts, oracle = OutcomeCounts(capacity=1, device=device_of(impl), impl=impl), OutcomeCounts(impl="reference")
    counts.merge(*(column.to(counts.device) for column in seen))
    oracle.merge(*seen)
    return counts, oracle


# A group of one; the paper's; an odd one; more than a thread of the Triton kernel takes.
SHAPES = {"native": [(9, 1), (64, 8), (16, 33), (3, 300)], "triton": [(2, 1), (4, 8), (2, 33), (1, 160)]}
ALL_BONUSES = ["none", "ucb", "ucb_mean", "ucb_con", "batch", "batch_positive", "batch+ucb_mean+ucb_con"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bonus", ALL_BONUSES)
@pytest.mark.parametrize("impl", FAST)
def test_three_way(impl: str, bonus: str, dtype: torch.dtype) -> None:
    """Against float64, at most twice the error of the reference in the same dtype; counts and most bonuses exactly."""
    counts, oracle = twins(impl)
    for step, (B, n) in enumerate(SHAPES[impl]):
        rewards, questions, outcomes = groups(B, n, step, impl, dtype)
        options: dict[str, Any] = {"bonus": bonus, "coef": 0.3, "baseline": 0.7, "eps": 0.01 * step, "ddof": step % 2}
        on_cpu = rewards.cpu(), questions.cpu(), outcomes.cpu()
        ours = group_advantages(rewards, questions, outcomes, counts, impl=impl, **options)  # type: ignore[arg-type]
        truth = group_advantages(on_cpu[0].double(), *on_cpu[1:], oracle, impl="reference", update=False, **options)
        plain = group_advantages(*on_cpu, oracle, impl="reference", **options)
        assert torch.equal(ours.counts.cpu(), plain.counts)
        assert ours.advantages.dtype == ours.bonuses.dtype == dtype
        for name in ("advantages", "bonuses"):
            got, eager, exact = (getattr(result, name).cpu().double() for result in (ours, plain, truth))
            # In float64 the reference is the truth; sums of n numbers may differ from it by as many roundings.
            allowed = 2 * (eager - exact).abs().max() + (4 + n) * torch.finfo(torch.float64).eps * exact.abs().max()
            assert (got - exact).abs().max() <= allowed, name
        if "ucb_mean" not in bonus:
            assert torch.equal(ours.bonuses.cpu(), plain.bonuses)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(counts.items(), oracle.items(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("exponent", [0.0, 0.25, 1.0, 3.0])
@pytest.mark.parametrize("impl", FAST)
def test_other_exponents_are_those_of_the_reference(impl: Any, exponent: float, dtype: torch.dtype) -> None:
    """Each takes its power in float64, and rounds once; two libraries may differ in its last bit."""
    counts, oracle = twins(impl)
    rewards, questions, outcomes = groups(*SHAPES[impl][1], 3, impl, dtype)
    options: dict[str, Any] = {"bonus": "ucb+ucb_con", "coef": 1.0, "exponent": exponent, "no_answer": "own_class"}
    options["zero_when_all_correct"] = False
    ours = group_advantages(rewards, questions, outcomes, counts, impl=impl, **options)
    plain = group_advantages(rewards.cpu(), questions.cpu(), outcomes.cpu(), oracle, impl="reference", **options)
    seen = plain.counts.clamp(min=1).double()
    torch.testing.assert_close(plain.bonuses.double(), 2 * seen**-exponent - 0.5, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ours.bonuses.cpu(), plain.bonuses, rtol=4 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("impl", FAST)
@pytest.mark.parametrize("no_answer", ["no_bonus", "own_class"])
@pytest.mark.parametrize("zero_when_all_correct", [None, True, False])
def test_rules_are_those_of_the_reference(impl: Any, no_answer: Any, zero_when_all_correct: bool | None) -> None:
    counts, oracle = twins(impl)
    rewards, questions, outcomes = groups(3, 4, 7, impl, torch.float64)
    correct = torch.zeros_like(rewards, dtype=torch.bool)
    correct[0] = True
    options: dict[str, Any] = {
        "bonus": "ucb+ucb_con+batch+batch_positive",
        "coef": (0.1, 0.2, 0.3, 0.4),
        "no_answer": no_answer,
        "zero_when_all_correct": zero_when_all_correct,
        "scale": "none",
    }
    for rule in ({"correct": correct}, {}):
        ours = group_advantages(rewards.clamp(max=1), questions, outcomes, counts, impl=impl, **options, **rule)
        on_cpu = {name: value.cpu() for name, value in rule.items()}
        arguments = (rewards.cpu(), questions.cpu(), outcomes.cpu(), oracle)
        plain = group_advantages(*arguments, impl="reference", **options, **on_cpu)
        assert torch.equal(ours.bonuses.cpu(), plain.bonuses)
        torch.testing.assert_close(ours.advantages.cpu(), plain.advantages, atol=1e-15, rtol=0)


@pytest.mark.skipif(native_obstacle() is not None, reason=str(native_obstacle()))
@settings(max_examples=150, deadline=None)
@given(data=st.data(), B=st.integers(0, 5), n=st.integers(1, 9))
def test_native_equals_the_reference_on_any_groups(data: st.DataObject, B: int, n: int) -> None:
    counts, oracle = OutcomeCounts(capacity=1, impl="native"), OutcomeCounts(impl="reference")
    few = st.sampled_from([0, 1, 2, -(2**63), 2**63 - 1])
    for _ in range(2):
        table = st.lists(few, min_size=B * n, max_size=B * n)
        outcomes = torch.tensor(data.draw(table), dtype=torch.int64).reshape(B, n)
        questions = torch.tensor(data.draw(st.lists(few, min_size=B, max_size=B)), dtype=torch.int64)
        rewards = torch.tensor(data.draw(st.lists(st.floats(-1, 1, width=32), min_size=B * n, max_size=B * n)))
        arguments = rewards.reshape(B, n).double(), questions, outcomes
        options: dict[str, Any] = {"bonus": data.draw(st.sampled_from(ALL_BONUSES)), "eps": 1e-3}
        ours = group_advantages(*arguments, counts, impl="native", **options)
        plain = group_advantages(*arguments, oracle, impl="reference", **options)
        assert torch.equal(ours.counts, plain.counts)
        torch.testing.assert_close(ours.bonuses, plain.bonuses, atol=1e-15, rtol=0)
        torch.testing.assert_close(ours.advantages, plain.advantages, atol=1e-9, rtol=1e-9)
        for row, keys in zip(ours.bonuses, outcomes, strict=True):
            for key in keys.unique():
                assert row[keys == key].unique().numel() == 1  # bit for bit
    assert all(map(torch.equal, counts.items(), oracle.items()))


@pytest.mark.parametrize("impl", ["reference", *FAST])
def test_rewards_that_are_no_numbers_show_and_stay_in_their_group(monkeypatch: pytest.MonkeyPatch, impl: Any) -> None:
    monkeypatch.setattr(api, "_check_finite", lambda rewards: None)  # as on a GPU
    nan, inf = math.nan, math.inf
    rewards = torch.tensor([[nan, 1], [nan, nan], [inf, 0], [-inf, -inf], [1, 0]], device=device_of(impl))
    outcomes = torch.ones_like(rewards, dtype=torch.int64)
    counts = OutcomeCounts(device=device_of(impl), impl=impl)
    got = group_advantages(rewards, torch.arange(5, device=rewards.device), outcomes, counts, impl=impl)
    assert got.advantages.isnan().tolist() == [[True, True], [True, True], [True, True], [False, False], [False, False]]
    assert got.bonuses.isfinite().all()
    assert len(counts) == 5


@pytest.mark.skipif(NO_TRITON is not None, reason=f"Triton: {NO_TRITON}")
def test_a_batch_too_long_for_one_program_is_committed_by_a_second_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    from outcome_rl_kernels.advantages import triton as advantages_triton

    monkeypatch.setattr(advantages_triton, "_COMMIT_HERE", 11)
    counts, oracle = twins("triton")
    rewards, questions, outcomes = groups(3, 4, 0, "triton", torch.float32)
    for _ in range(2):
        got = group_advantages(rewards, questions, outcomes, counts, impl="triton")
        plain = group_advantages(rewards.cpu(), questions.cpu(), outcomes.cpu(), oracle, impl="reference")
        assert torch.equal(got.counts.cpu(), plain.counts)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(counts.items(), oracle.items(), strict=True))


def test_auto_takes_what_the_counts_and_the_rewards_allow() -> None:
    counts = OutcomeCounts(impl="reference")
    assert api._choose("auto", REWARDS, counts).impl == "reference"
    assert api._choose("auto", REWARDS.bfloat16(), None).impl == "reference"
    assert api._choose("auto", REWARDS, None).impl == ("reference" if native_obstacle() else "native")
    if not native_obstacle():
        assert call(OutcomeCounts(impl="native"), impl="reference").counts is not None  # any table will do


@pytest.mark.skipif(native_obstacle() is not None, reason=str(native_obstacle()))
def test_an_implementation_that_cannot_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    native = OutcomeCounts(impl="native")
    with pytest.raises(ValueError, match=r"it computes in float32 or float64, got float16"):
        group_advantages(REWARDS.half(), QUESTIONS, OUTCOMES, native, impl="native")
    with pytest.raises(ValueError, match="impl='native'\\) cannot run: the counts have impl='reference'"):
        call(OutcomeCounts(impl="reference"), impl="native")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(ValueError, match="the counts have impl='native'"):
        call(native, impl="triton")
    with pytest.raises(ValueError, match="a group may have at most 256 samples, got 257"):
        group_advantages(torch.zeros(1, 257), QUESTIONS[:1], OUTCOMES.new_zeros(1, 257), impl="triton", bonus="batch")
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(ValueError, match="impl='triton'\\) cannot run: its tensors must be on a GPU, got cpu"):
        call(native, impl="triton")
    monkeypatch.setenv("OUTCOME_RL_NATIVE", "0")
    with pytest.raises(ValueError, match="cannot run: the native library is not available: switched off"):
        call(native, impl="native")
    assert len(native) == 0


def test_counts_on_another_device_are_refused() -> None:
    rewards, questions, outcomes = (tensor.to("meta") for tensor in (REWARDS, QUESTIONS, OUTCOMES))
    with pytest.raises(ValueError, match=r"counts must be on meta, like the rewards; got counts on cpu"):
        group_advantages(rewards, questions, outcomes, OutcomeCounts())


@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a GPU: there is none")
def test_a_captured_call_counts_at_every_replay_without_synchronising() -> None:
    counts, oracle = OutcomeCounts(capacity=2**16, device=DEVICE), OutcomeCounts(impl="reference")
    rewards, questions, outcomes = groups(256, 8, 0, "triton", torch.float32)
    group_advantages(rewards, questions, outcomes, counts)
    torch.cuda.set_sync_debug_mode("error")
    try:
        group_advantages(rewards, questions, outcomes, counts)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = group_advantages(rewards, questions, outcomes, counts)
    for call_number in range(1000):
        plain = group_advantages(rewards.cpu(), questions.cpu(), outcomes.cpu(), oracle, impl="reference")
        if call_number >= 2:
            graph.replay()
            assert torch.equal(got.counts.cpu(), plain.counts)
            assert torch.equal(got.bonuses.cpu(), plain.bonuses)


@pytest.mark.parametrize("impl", ["reference", *FAST])
@pytest.mark.parametrize("bonus", ["ucb", "ucb_mean", "ucb_con", "ucb_con+batch"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_count_after_and_only(impl: Any, bonus: str, data: st.DataObject) -> None:
    """Against the signals of counts that a dictionary keeps, where a question may occur in several groups."""
    B, n = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    questions = data.draw(st.lists(st.integers(1, 2), min_size=B, max_size=B))
    outcomes = data.draw(st.lists(st.lists(st.integers(0, 2), min_size=n, max_size=n), min_size=B, max_size=B))
    right = data.draw(st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=B, max_size=B))
    only: Any = data.draw(st.sampled_from(["all", "incorrect", "unsolved"]))
    count: Any = data.draw(st.sampled_from(["before", "after"]))
    device = DEVICE if impl == "triton" else torch.device("cpu")
    counts = OutcomeCounts(64, device, impl=impl)
    known: dict[tuple[int, int], int] = {}
    columns = (torch.rand(B, n), torch.tensor(questions), torch.tensor(outcomes))
    for _ in range(2):
        before = dict(known)
        for question, group in zip(questions, outcomes, strict=True):
            for outcome in group:
                known[question, outcome] = known.get((question, outcome), 0) + 1
        result = group_advantages(
            *(column.to(device) for column in columns),
            counts,
            correct=torch.tensor(right, device=device),
            bonus=bonus,
            coef=0.5,
            only=only,
            count=count,
            impl=impl,
        )
        assert result.counts is not None
        pairs = [
            [(question, outcome) for outcome in group] for question, group in zip(questions, outcomes, strict=True)
        ]
        assert result.counts.tolist() == [[before.get(pair, 0) for pair in row] for row in pairs]
        used = known if count == "after" else before
        expected = exploration_bonuses(
            columns[2],
            torch.tensor([[used.get(pair, 0) for pair in row] for row in pairs]),
            torch.tensor([all(row) for row in right]),
            GroupSettings(parse_bonus(bonus), (0.5,) * len(parse_bonus(bonus))),
            torch.float32,
        )
        none = [[(only == "incorrect" and one) or (only == "unsolved" and any(row)) for one in row] for row in right]
        torch.testing.assert_close(result.bonuses.cpu(), expected.masked_fill(torch.tensor(none), 0.0))


def test_count_after_must_count() -> None:
    with pytest.raises(ValueError, match="count='after' counts the batch"):
        call(OutcomeCounts(), count="after", update=False)
