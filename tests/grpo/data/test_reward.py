"""The user's reward function: its arguments, its values, its processes, and errors that name the question."""

from pathlib import Path

import pytest

from outcome_rl.grpo.config.schema import RewardConfig
from outcome_rl.grpo.data.reward import RewardFunction
from outcome_rl.grpo.types import Problem

PROBLEMS = [Problem(name, "?", "4", example={"id": name, "length": length}) for name, length in (("a", 2), ("b", 5))]
NO_NUMBERS = [
    "None",
    "'good'",
    "math.nan",
    "-math.inf",
    "[1.0]",
    "{}",
    "10**400",
    "'1.0'",
    "1j",
    "__import__('numpy').complex64(1)",
]


def reward(
    body: str, folder: Path, *, weights: list[float] | None = None, isolated: bool = False, timeout_s: float = 5
) -> RewardFunction:
    path = folder / f"rewards_{folder.name}.py"  # Python imports each name once
    path.write_text(
        "import asyncio, math, os, sys, time\nfrom outcome_rl.outcomes.isolated import isolated\n"
        f"def plain(response, example):\n    return {body}\nkilled = isolated(plain, {timeout_s}, 4096)\n"
    )
    return RewardFunction(RewardConfig(f"{path}:{'killed' if isolated else 'plain'}", weights))


@pytest.mark.parametrize("isolated", [False, True])
def test_it_gets_the_response_and_the_row_of_the_data(tmp_path: Path, isolated: bool) -> None:
    call = reward("-abs(len(response) - example['length'])", tmp_path, isolated=isolated)
    found = call(["abc", "abc"], PROBLEMS)
    call.close()
    assert found == [-1.0, -2.0]
    assert all(type(value) is float for value in found)
    assert call.failed == 0


@pytest.mark.parametrize(
    "body",
    ["True", "1", "1.0", "__import__('torch').tensor(1.0)", "__import__('numpy').ones(1)[0]"],
)
def test_any_finite_number_is_a_reward(body: str, tmp_path: Path) -> None:
    assert reward(body, tmp_path)([""], PROBLEMS[:1]) == [1.0]


@pytest.mark.parametrize("isolated", [False, True])
def test_with_weights_it_returns_a_number_for_each(tmp_path: Path, isolated: bool) -> None:
    body = "(1, 0.5)[: len(response)] if response != 'exit' else os._exit(0)"
    call = reward(body, tmp_path, weights=[1.0, 0.2], isolated=isolated)
    assert call(["abc", "ab"], PROBLEMS) == [[1.0, 0.5]] * 2
    if isolated:
        assert call(["exit"], PROBLEMS[:1]) == [[0.0, 0.0]]
    with pytest.raises(
        ValueError, match=r"question 'a': must return 2 numbers, as many as reward\.weights; got \(1,\)"
    ):
        call(["a"], PROBLEMS[:1])
    call.close()


@pytest.mark.parametrize("isolated", [False, True])
def test_other_values_are_refused(tmp_path: Path, isolated: bool) -> None:
    values = {body.replace("math.", ""): body for body in NO_NUMBERS}
    cases = ", ".join(f"{name!r}: lambda: {body}" for name, body in values.items())
    call = reward(f"{{{cases}}}[response]()", tmp_path, isolated=isolated)
    errors = (ValueError, RuntimeError) if isolated else ValueError  # some do not survive the way
    for name in values:
        with pytest.raises(errors, match=r"reward\.function=.*question 'a'") as refusal:
            call([name], PROBLEMS[:1])
        assert isolated or "a finite number" in str(refusal.value)
    call.close()


def test_its_exceptions_name_the_question_and_keep_their_traceback(tmp_path: Path) -> None:
    call = reward("example['missing']", tmp_path)
    with pytest.raises(RuntimeError, match=r"reward\.function=.*question 'b': KeyError: 'missing'.*'text'") as raised:
        call(["text"], PROBLEMS[1:])
    assert isinstance(raised.value.__cause__, KeyError)


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("body", ["sys.exit(0)", "(_ for _ in ()).throw(asyncio.CancelledError)"])
def test_what_would_end_the_process_is_its_error(tmp_path: Path, isolated: bool, body: str) -> None:
    call = reward(body, tmp_path, isolated=isolated)
    with pytest.raises(RuntimeError, match=r"reward\.function=.*question 'a': .*(SystemExit|CancelledError)"):
        call([""], PROBLEMS[:1])
    call.close()


def test_ctrl_c_passes(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        reward("(_ for _ in ()).throw(KeyboardInterrupt)", tmp_path)([""], PROBLEMS[:1])


def test_a_call_that_its_process_does_not_survive_gives_0_and_is_counted(tmp_path: Path) -> None:
    body = "time.sleep(60) if 'slow' in response else os._exit(0) if 'exit' in response else 2"
    call = reward(body, tmp_path, isolated=True, timeout_s=0.5)
    assert call(["slow", "exit", ""], [PROBLEMS[0]] * 3) == [0.0, 0.0, 2.0]
    assert call.failed == 2
    assert call([""], PROBLEMS[:1]) == [2.0]
    assert call.failed == 0
    call.close()
