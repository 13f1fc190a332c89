"""The Explorer: advantages and bonuses by hand, counting, metrics, and wrong arguments."""

import math
import re
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from explorer_rows import ROWS, arguments, columns, histories, state, text
from hypothesis import given, settings
from hypothesis import strategies as st
from method_oracles import Group, Method
from transformers import AutoTokenizer

from outcome_rl import NO_ANSWER, ExplorationConfig, Explorer, Scored, answer_mask, outcome_key
from outcome_rl.outcomes.answer_mask import decode_completion
from outcome_rl.outcomes.batch import Batch
from outcome_rl.retired import replacements
from outcome_rl.toy import policy_dir

BONUSES = ["none", "ucb", "ucb_mean", "ucb_con", "batch", "batch_positive", "ucb_con+batch", "ucb_mean+batch_positive"]


def by_hand(rows: list[tuple[int, int, int, float]], counts: Counter[tuple[int, int]], method: Method) -> Any:
    """Advantage and bonus of each row (N, 2), from the formulas of the paper; the counts are those before the batch."""
    found = np.zeros((len(rows), 2))
    for question, group in {row[:2] for row in rows}:
        own = [i for i, row in enumerate(rows) if row[:2] == (question, group)]
        keys, rewards = (np.array([rows[i][column] for i in own]) for column in (2, 3))
        before = np.array([counts[question, key] for key in keys.tolist()])
        peers = Group(rewards, keys == question + 1, keys, before, 0, 0)
        found[own] = np.stack([method.advantages(peers), method.bonuses(peers)], axis=1)
    return found


# --- scoring


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(ROWS, st.booleans()), max_size=3), st.sampled_from(BONUSES))
def test_advantages_bonuses_and_history_follow_the_formulas(steps: list[Any], bonus: str) -> None:
    """Groups of unequal size, questions in several groups, and steps that are scored, or only counted."""
    names = [] if bonus == "none" else bonus.split("+")
    method = Method("grpo", dict(zip(names, [0.2, 0.5], strict=False)), 1)
    explorer = Explorer(**method.settings)
    explorer.count([], [], [])  # nothing was filtered out
    counts: Counter[tuple[int, int]] = Counter()
    for rows, is_scored in steps:
        if is_scored:
            scored = explorer.score(**arguments(rows))
            expected = by_hand(rows, counts, method)
            assert scored.advantages.tolist() == pytest.approx(expected[:, 0], abs=1e-5)
            assert scored.bonuses.tolist() == pytest.approx(expected[:, 1], abs=1e-6)
            assert scored.counts.tolist() == [counts[question, answer] for question, _, answer, _ in rows]
            assert scored.correct.tolist() == [answer == question + 1 for question, _, answer, _ in rows]
            assert scored.keys.tolist() == [outcome_key(str(row[2])) if row[2] else NO_ANSWER for row in rows]
        else:
            explorer.count(*(arguments(rows)[name] for name in ("question_ids", "responses", "golds")))
        counts.update((question, answer) for question, _, answer, _ in rows)
    expected_histories = {}
    for question in range(3):
        seen = {answer: n for (q, answer), n in counts.items() if q == question}
        listed = explorer.seen(f"q{question}")
        assert dict(listed) == {str(answer) if answer else None: n for answer, n in seen.items()}
        assert [n for _, n in listed] == sorted(seen.values(), reverse=True)
        if seen:
            expected_histories[f"q{question}"] = (sum(seen.values()), seen.get(question + 1, 0), len({*seen} - {0}))
    assert histories(explorer) == expected_histories
    assert explorer.solved == {question: successes > 0 for question, (_, successes, _) in expected_histories.items()}


@settings(max_examples=30, deadline=None)
@given(ROWS, ROWS, st.integers(0, 1000))
def test_the_order_of_the_responses_does_not_matter(before: Any, rows: Any, seed: int) -> None:
    order = list(range(len(rows)))
    Random(seed).shuffle(order)
    ended = []
    for permutation in (list(range(len(rows))), order):
        explorer = Explorer(bonus="ucb_mean+batch", coef=0.3)
        explorer.score(**arguments(before))
        scored = explorer.score(**arguments([rows[i] for i in permutation]))
        where = torch.tensor(permutation).argsort()
        ended.append((scored.select(where.tolist()), explorer))
    (first, one), (second, other) = ended
    for name in ("correct", "rewards", "keys", "counts"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    for name in ("advantages", "bonuses"):
        torch.testing.assert_close(getattr(first, name), getattr(second, name), rtol=1e-6, atol=1e-6)
    assert first.metrics == pytest.approx(second.metrics, abs=1e-6)
    assert state(one) == state(other)


def test_the_first_text_of_an_outcome_in_order_is_kept() -> None:
    """Not the first of a set, which differs from process to process."""
    explorer = Explorer()
    spellings = [rf"\boxed{{{n}{end}}}" for n in range(1, 9) for end in (".0", "", ".00")]
    explorer.count(["q"] * len(spellings), spellings, ["0"] * len(spellings))
    assert explorer.seen("q") == [(str(n), 3) for n in range(1, 9)]


@pytest.mark.parametrize("bonus", [bonus for bonus in BONUSES if bonus != "none"])
def test_a_group_without_any_answer_gets_no_bonus(bonus: str) -> None:
    """A mixed group keeps the signal, which tells its samples apart."""
    ids, groups, answers = ["q", "q", "r", "r", "q", "q"], [0, 0, 1, 1, 2, 2], [None, None, None, None, None, 2]
    explorer = Explorer(bonus=bonus)
    scored = explorer.score(ids, [text(answer) for answer in answers], ["1"] * 6, group_ids=groups)
    assert scored.bonuses[:4].tolist() == [0.0] * 4
    assert scored.bonuses[4:].any() or bonus in ("batch",)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            assert not explorer.score(ids[:4], [text(None)] * 4, ["1"] * 4).bonuses.any()
    assert ["length limit" in str(one.message) for one in told] == [True]


def test_rewards_are_the_correct_responses_unless_they_are_given() -> None:
    ids, responses, golds = ["q"] * 4, [text(1), text(2), text(2), text(None)], ["1"] * 4
    by_default = Explorer().score(ids, responses, golds)
    assert by_default.rewards.tolist() == [1, 0, 0, 0]
    assert by_default.rewards.dtype == torch.float32
    given = Explorer(bonus="batch").score(ids, responses, golds, torch.tensor([2.0, -1, 0, 0], dtype=torch.float64))
    assert given.rewards.dtype == given.advantages.dtype == given.bonuses.dtype == torch.float64
    assert given.correct.tolist() == by_default.correct.tolist()  # a penalty makes nothing wrong
    half = Explorer().score(ids, responses, golds, torch.tensor([1, 0, 0, 0], dtype=torch.bfloat16))
    assert half.metrics == pytest.approx(by_default.metrics, rel=0.01)
    centred = Explorer(bonus="batch", scale="none")
    for scored in (
        centred.score(ids, responses, golds),
        Explorer(bonus="batch").score(ids, responses, golds, scale="none"),
    ):
        assert scored.advantages.tolist() == [0.75, -0.25, -0.25, -0.25]


@pytest.mark.parametrize("kind", [pd.Series, np.array, iter, tuple], ids=["pandas", "numpy", "iterator", "tuple"])
def test_columns_of_every_kind(kind: Callable[[Any], Any]) -> None:
    rows = [(0, 0, 1, 1.0), (0, 0, 2, 0.5), (1, 0, 3, 0.0)]
    lists = arguments(rows) | {"golds": None, "correct": [True, False, True]}
    given = {name: values if values is None or name == "group_ids" else kind(values) for name, values in lists.items()}
    for name in ("rewards", "correct"):
        if kind is pd.Series:
            given[name].index = [0, 7, 8]  # of a frame without some rows
    assert columns(Explorer().score(**given)) == columns(Explorer().score(**lists))


@pytest.mark.parametrize("name", ["device", "dtype"])
def test_defaults_of_pytorch_change_nothing(name: str, tmp_path: Path) -> None:
    """As in tests/kernels: "meta" stands for a GPU, and holds no data."""

    def run(folder: Path) -> list[Any]:
        explorer = Explorer(adv_estimator="beta_bernoulli", bonus="ucb_con")
        rows = [(0, 0, 1, 1.0), (0, 0, 2, 0.0), (1, 0, 0, 0.5)]
        found = [columns(explorer.score(**arguments(rows))) for _ in range(2)]
        explorer.count(Batch(["q0"], [text(3)], correct=[True]))
        explorer.save(folder)
        loaded = Explorer.load(folder)
        mask = answer_mask(AutoTokenizer.from_pretrained(policy_dir()), [[1, 2], [3]], [None, None])
        return [found, state(loaded), histories(loaded), loaded.seen("q0"), mask.tolist()]

    expected = run(tmp_path / "plain")
    default_dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if name == "dtype" else default_dtype)
    try:
        with torch.device("meta" if name == "device" else "cpu"):
            assert run(tmp_path / "other") == expected
    finally:
        torch.set_default_dtype(default_dtype)


def test_verdicts_may_take_the_place_of_the_golds() -> None:
    explorer = Explorer(bonus="ucb_con")
    scored = explorer.score(["q", "q"], [text(1), text(2)], None, correct=[True, True])
    assert scored.rewards.tolist() == [1, 1]
    assert scored.bonuses.tolist() == [0, 0]  # the rule for groups that are all correct
    assert scored.metrics["outcomes/correct_rate"] == 1
    for golds in (None, ["1", "1"]):
        explorer.count(Batch(["r", "r"], [text(1), text(2)], golds, correct=[False, True]))
    assert histories(explorer) == {"q": (2, 2, 2), "r": (4, 2, 2)}


def test_rewards_of_0_and_1_say_what_is_correct() -> None:
    scored = Explorer(bonus="ucb_con").score(["q", "q"], [text(1), text(2)], None, [0.0, 1.0])
    assert scored.correct.tolist() == [False, True]
    assert scored.metrics["exploration/solved_fraction"] == 1


def test_where_correctness_is_unknown_no_metric_is_made_up_and_no_run_ends() -> None:
    explorer, later = Explorer(bonus="ucb"), Explorer(bonus="ucb_con")
    with pytest.raises(ValueError, match=r"because bonus='ucb_con' requires.* also -0\.5"):
        later.score(["q", "q"], [text(1), text(2)], None, [-0.5, 0.0])
    later.score(["q", "q"], [text(1), text(2)], None, [1.0, 0.0])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for one in (explorer, explorer, later):
            scored = one.score(["q", "q"], [text(1), text(2)], None, [-0.5, 0.0])
            assert not scored.correct.any()
            assert not scored.metrics.keys() & {"outcomes/correct_rate", "exploration/solved_fraction"}
    assert ["unknown which responses are correct" in str(one.message) for one in said] == [True, True]
    assert explorer.seen("q") == [("1", 2), ("2", 2)]


# --- the answer's tokens


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(policy_dir())


MODES = ["policy", "bonus", "all", "none"]


@pytest.mark.parametrize("mode", MODES)
def test_answer_tokens_and_token_advantages(tokenizer: Any, mode: str) -> None:
    """Padded tensors and ragged lists, with the advantages that each mode leaves on the answer."""
    texts = [r"1 + 3 = 4 \boxed{ 4 }", r"\boxed{ 5 }", "1 + 3"]
    ragged = [tokenizer(t, add_special_tokens=False)["input_ids"] for t in texts]
    responses = [decode_completion(tokenizer, ids) for ids in ragged]
    scored = Explorer(bonus="ucb", coef=0.5, answer_mask_mode=mode).score(["q"] * 3, responses, ["4"] * 3)
    mask = scored.answer_mask(tokenizer, ragged)
    padded = torch.full(mask.shape, tokenizer.pad_token_id)
    for row, ids in enumerate(ragged):
        padded[row, : len(ids)] = torch.tensor(ids)
    assert torch.equal(scored.answer_mask(tokenizer, padded), mask)
    spelled = [tokenizer.decode(ids[m]) for ids, m in zip(padded, mask, strict=True)]
    assert spelled == (["", "", ""] if mode == "none" else ["4", "5", ""])
    on_answers = {"policy": torch.zeros(3), "bonus": scored.advantages}.get(mode, scored.advantages + scored.bonuses)
    expected = torch.where(mask, on_answers[:, None], (scored.advantages + scored.bonuses)[:, None])
    torch.testing.assert_close(scored.token_advantages(mask.long()), expected)


def test_some_responses(tokenizer: Any) -> None:
    first, second = (arguments([(q, 0, 1, 1.0), (q, 0, 2, 0.0), (q, 1, 0, 0.0)]) for q in (0, 1))
    scored = Explorer().score(**{name: first[name] + second[name] for name in first})
    last = scored.select(range(3, 6))
    assert last.answers == scored.answers[3:]
    assert last.metrics["outcomes/no_answer_rate"] == pytest.approx(1 / 3)
    assert last.metrics["outcomes/distinct_in_group"] == 1  # groups of two answers and of none


# --- metrics

EXPECTED = {
    # Groups: a (two right, one wrong, one without answer), b (two wrong, two without), c (all right).
    "outcomes/correct_rate": 6 / 12,
    "outcomes/all_correct_groups": 1 / 3,
    "outcomes/all_wrong_groups": 1 / 3,
    "outcomes/forgotten_groups": 0,
    "outcomes/distinct_in_group": (2 + 2 + 1) / 3,
    "outcomes/distinct_in_group_solved": (2 + 1) / 2,
    "outcomes/distinct_in_group_unsolved": 2,
    "outcomes/distinct_in_group_once_solved": (2 + 1) / 2,
    "outcomes/distinct_in_group_never_solved": 2,
    "outcomes/no_answer_rate": 3 / 12,
    "outcomes/unresolved": 0,
    "outcomes/votes": 0,
    "time/votes_s": 0,
    # ucb with c = 0.5, nothing seen before but answer 5 of b, once: nine answers, one of them with N = 1.
    "exploration/bonus_mean": 0.5 * 9 / 12,
    "exploration/bonus_abs_mean": 0.5 * 9 / 12,
    "exploration/negative_groups": 0.0,
    "exploration/new_outcome_rate": 8 / 12,
    "exploration/samples": 14,
    "exploration/questions": 4,
    "exploration/solved_fraction": 2 / 4,
    "exploration/distinct_answers": (2 + 2 + 1 + 1) / 4,
    "exploration/distinct_answers_unsolved": (2 + 1) / 2,
}


def test_every_metric_by_its_value() -> None:
    explorer = Explorer(bonus="ucb", coef=0.5)
    explorer.count(["b", "d"], [text(5), text(5)], ["7", "4"])
    rows = [*[("a", "1", a) for a in (1, 1, 2, 0)], *[("b", "7", a) for a in (5, 6, 0, 0)], *[("c", "3", 3)] * 4]
    ids, golds, answers = zip(*rows, strict=True)
    scored = explorer.score(ids, [text(a) for a in answers], golds)
    assert scored.metrics == pytest.approx(EXPECTED)


def test_a_group_that_does_not_occur_has_no_metric() -> None:
    right = Explorer().score(["q"], [text(1)], ["1"]).metrics
    assert EXPECTED.keys() - right.keys() == {
        "outcomes/distinct_in_group_unsolved",
        "outcomes/distinct_in_group_never_solved",
        "exploration/distinct_answers_unsolved",
    }
    wrong = Explorer().score(["q"], [text(None)], ["1"]).metrics
    assert EXPECTED.keys() - wrong.keys() == {
        "outcomes/distinct_in_group_solved",
        "outcomes/distinct_in_group_once_solved",
    }
    assert wrong["outcomes/distinct_in_group"] == wrong["exploration/distinct_answers"] == 0


def test_history_splits_groups_otherwise_than_the_batch() -> None:
    explorer = Explorer()
    explorer.count(["a"], [text(1)], ["1"])
    scored = explorer.score(["a"] * 3 + ["b"] * 3, [text(a) for a in (2, 3, 4, 5, 5, 0)], ["1"] * 3 + ["9"] * 3)
    assert scored.metrics["outcomes/forgotten_groups"] == 1 / 2  # a was solved before, and is all wrong now
    assert scored.metrics["outcomes/distinct_in_group_unsolved"] == (3 + 1) / 2
    assert scored.metrics["outcomes/distinct_in_group_once_solved"] == 3
    assert scored.metrics["outcomes/distinct_in_group_never_solved"] == 1
    for mask in ([True, False] * 3, torch.tensor([True, False] * 3)):
        assert torch.equal(scored.select(mask).keys, scored.keys[mask])


def test_the_docstring_defines_every_metric() -> None:
    table = [line for line in (Scored.metrics.__doc__ or "").splitlines() if line.strip().startswith("| `")]
    assert {line.split("`")[1] for line in table} == EXPECTED.keys()
    page = (Path(__file__).resolve().parents[2] / "docs" / "integrate.md").read_text().splitlines()
    assert [line.strip() for line in table if line.strip() not in page] == []


# --- settings and errors


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"bonus": "curiosity"}, "bonus must be one of"),
        ({"bonus": None}, "bonus must be a string; got None"),  # which is not "none", and no request for the default
        ({"coef": -0.1}, "coef must be >= 0"),
        ({"coef": [0.1, 0.2]}, "coef must be a number"),
        ({"coeff": 0.1}, "unknown setting 'coeff'; did you mean 'coef'?"),
        ({"baseline": 1}, re.escape(replacements()["exploration.baseline"])),
    ],
)
def test_wrong_settings_are_refused_at_construction(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises((TypeError, ValueError), match=named):
        Explorer(**wrong)


def test_settings_go_over_the_configuration() -> None:
    config = ExplorationConfig(bonus="batch", coef=0.3)
    assert asdict(Explorer(config, coef=0.4).config) == asdict(config) | {"coef": 0.4}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"responses": ["a"]}, "one entry per response"),
        ({"group_ids": ["g"]}, "group_ids"),
        ({"group_ids": ["g", "h", "h"]}, "group_ids must name groups of one question each"),
        ({"golds": ["1", "2", "2"]}, "golds must agree for a question: question 'q'"),
        ({"question_ids": ["q", True, "r"]}, r"got True \(bool\)"),
        ({"golds": ["1", True, "2"]}, "golds must be strings.*finite number"),
        ({"golds": [1.0, math.nan, 2.0]}, "golds must be strings; got nan"),
        ({"golds": [torch.tensor(1)] * 3}, r"Use \.tolist"),
        ({"question_ids": [" ", " ", "r"]}, "blank"),
        ({"rewards": [1.0, 0.0]}, "rewards must be 3 numbers"),
        ({"rewards": torch.tensor([1, 0])}, "rewards must be 3 numbers"),
        ({"group_ids": [[0], [0], [1]]}, "group_ids must be hashable"),
        ({"group_ids": ["g", (0, math.nan), "h"]}, "group_ids"),
        ({"question_ids": None}, "question_ids must be a list of strings"),
        ({"responses": iter([1, 2, 3])}, "responses must be strings.*Use str"),
        ({"responses": [b"x"] * 3}, r"must be strings.*Use \.decode"),
        ({"responses": [[{"role": "assistant", "content": "x"}]] * 3}, r"must be strings.*messages\[-1\]\['content'\]"),
        ({"responses": [[1, 2], [3], [4]]}, r"must be strings.*tokenizer\.batch_decode"),
        ({"responses": ["1", None, "2"]}, r"must be strings.*'' where no text"),
        ({"golds": [None] * 3}, "golds must be strings.*golds=None if no question has one"),
        ({"gold": ["1"] * 3}, "there is no column 'gold'; did you mean 'golds'"),
        ({"correct": [1, 0, 0]}, "correct must be 3 booleans"),
        ({"golds": None}, "golds or correct must be given, because"),
        ({"scale": "mean"}, "scale must be one of"),
        ({name: [] for name in ("question_ids", "responses", "golds")}, "at least one"),
    ],
)
def test_wrong_arguments_are_refused_and_nothing_is_counted(change: dict[str, Any], named: str) -> None:
    explorer, other = Explorer(bonus="ucb_con"), Explorer(bonus="ucb_con")
    right: dict[str, Any] = {"question_ids": ["q", "q", "r"], "responses": [text(1), text(2), text(2)]}
    right["golds"] = ["1", "1", "2"]
    for one in (explorer, other):
        one.score(["s"] * 2, [text(1), text(3)], ["1"] * 2)
    with pytest.raises((TypeError, ValueError), match=named):
        explorer.score(**(right | change))
    assert state(explorer) == state(other)
    assert columns(explorer.score(**right)) == columns(other.score(**right))  # not refused because of the wrong one


NO_NUMBERS = {
    "complex": [1.0, 1j, 0.0],
    "NumPy's complex": np.array([1, 0, 1], dtype=np.complex64),
    "a tensor's complex": torch.tensor([1 + 0j, 0, 1]),
    "text": ["1", "0", "1"],
    "bytes": b"101",
    "a set": {0.0, 1.0, 2.0},
    "a dictionary": dict.fromkeys([0.0, 1.0, 2.0]),
    "dates": np.array([0, 1, 2], dtype="datetime64[D]"),
    "null": [1.0, None, 0.0],
    "not finite": [1.0, math.nan, math.inf],
    "masked": np.ma.array([1.0, 0.0, 1.0], mask=[False, True, False]),
    "ragged": [[1.0], [0.0, 1.0], [1.0]],
    "too large": [10**400, 0, 1],
    "sparse": torch.eye(3).to_sparse(),
    "without values": torch.empty(3, device="meta"),
}


@pytest.mark.parametrize("column", ["rewards", "scores", "correct", "reward_weights"])
@pytest.mark.parametrize("values", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_a_column_of_no_real_numbers_is_refused_by_its_name(column: str, values: Any) -> None:
    explorer = Explorer(bonus="ucb_con")
    before = state(explorer)
    named = "golds or correct" if column == "scores" and values is NO_NUMBERS["not finite"] else column
    with pytest.raises((TypeError, ValueError), match=rf"^{named} must"):
        explorer.score(["q"] * 3, [text(1), text(2), text(2)], **({"rewards": torch.eye(3)} | {column: values}))
    assert state(explorer) == before


@pytest.mark.parametrize("column", [list, np.array, torch.tensor, iter])
def test_columns_of_any_type_and_numbers_whose_meaning_is_plain(column: Callable[[list[float]], Any]) -> None:
    responses = [text(1), r"\boxed{1/2}", text(7)]
    explorer, same = Explorer(), Explorer()
    scored = explorer.score(column([3, 3, 4]), iter(responses), column([0.5, 0.5, 7.0]), np.array([1, 0, 1]))
    wanted = same.score(["3", "3", "4"], np.array(responses), ["0.5", "0.5", "7.0"], torch.tensor([True, False, True]))
    assert scored.correct.tolist() == wanted.correct.tolist() == [False, True, True]
    assert scored.advantages.tolist() == wanted.advantages.tolist()
    assert explorer.seen(3) == same.seen("3")


def test_solved_questions_cannot_be_changed_from_outside() -> None:
    explorer = Explorer()
    explorer.score(["q"], [text(1)], ["2"])
    with pytest.raises(TypeError):
        explorer.solved["x"] = False
    before = explorer.solved
    scored = explorer.score(["q", "r"], [text(2), text(3)], ["2", "1"])
    assert before == {"q": False}
    assert explorer.solved == {"q": True, "r": False}
    assert scored.metrics["exploration/distinct_answers"] == 1.5
    assert scored.metrics["exploration/distinct_answers_unsolved"] == 1


@pytest.mark.parametrize("config", [{"bonus": "batch"}, "batch"])
def test_a_config_of_another_type_is_refused(config: Any) -> None:
    with pytest.raises(TypeError, match=r"config,.* must be an ExplorationConfig"):
        Explorer(config)


@pytest.mark.parametrize(
    ("mask", "named"),
    [
        (torch.zeros(2, 3), "answer_mask must be bool"),
        (torch.zeros(3, 3, dtype=torch.bool), "with N = 2"),
        (torch.zeros(2, dtype=torch.bool), "shape"),
    ],
)
def test_a_mask_of_another_form_is_refused(mask: Any, named: str) -> None:
    scored = Explorer().score(["q"] * 2, [text(1), text(2)], ["1"] * 2)
    with pytest.raises((TypeError, ValueError), match=named):
        scored.token_advantages(mask)
