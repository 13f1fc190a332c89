"""The user's reward function: its arguments, its values, and errors that name the question."""

from pathlib import Path

import pytest

from outcome_rl.grpo.data.reward import RewardFunction
from outcome_rl.grpo.types import Problem

PROBLEMS = [Problem(name, "?", "4", example={"id": name, "length": length}) for name, length in (("a", 2), ("b", 5))]


def reward(body: str, folder: Path) -> RewardFunction:
    path = folder / f"rewards_{folder.name}.py"  # Python imports each name once
    path.write_text(f"import math, torch\ndef reward(response, example):\n    return {body}\n")
    return RewardFunction(f"{path}:reward")


def test_it_gets_the_response_and_the_row_of_the_data(tmp_path: Path) -> None:
    found = reward("-abs(len(response) - example['length'])", tmp_path)(["abc", "abc"], PROBLEMS)
    assert found == [-1.0, -2.0]
    assert all(type(value) is float for value in found)


@pytest.mark.parametrize("body", ["True", "1", "1.0", "torch.tensor(1.0)", "torch.ones(1).numpy()[0]"])
def test_any_finite_number_is_a_reward(body: str, tmp_path: Path) -> None:
    assert reward(body, tmp_path)([""], PROBLEMS[:1]) == [1.0]


@pytest.mark.parametrize("body", ["None", "'good'", "math.nan", "-math.inf", "[1.0]", "{}"])
def test_other_values_are_refused(body: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"reward\.function=.*question 'a': must return a finite number; got .*Return"):
        reward(body, tmp_path)([""], PROBLEMS[:1])


def test_its_exceptions_name_the_question_and_keep_their_traceback(tmp_path: Path) -> None:
    call = reward("example['missing']", tmp_path)
    with pytest.raises(RuntimeError, match=r"reward\.function=.*question 'b': KeyError: 'missing'.*'text'") as raised:
        call(["text"], PROBLEMS[1:])
    assert isinstance(raised.value.__cause__, KeyError)
