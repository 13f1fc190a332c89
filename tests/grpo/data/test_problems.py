"""Problems have stable ids or are refused, and batches depend only on seed and step."""

import csv
import gzip
import json
import random
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import rows as rows_of_table

from outcome_rl.files.rows import ANSWER_COLUMNS, ID_COLUMNS, PROMPT_COLUMNS
from outcome_rl.grpo.config.schema import DataConfig
from outcome_rl.grpo.data.problems import BatchOrder, load_problems, set_name
from outcome_rl.grpo.types import Message, Problem, ProblemSet

ROWS = [{"id": f"q{i}", "problem": f"{i} + {i}?", "answer": str(2 * i)} for i in range(4)]
PROBLEMS = tuple(Problem(row["id"], row["problem"], row["answer"]) for row in ROWS)


def write(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def load(source: str, **settings: Any) -> ProblemSet:
    return load_problems([source], DataConfig(**settings))


@pytest.mark.parametrize("empty", ["", "  ", None])
def test_empty_answers_are_dropped_and_counted(
    empty: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """MATH has two solutions that end in an empty box."""
    rows = [row | {"answer": empty} if row["id"] in ("q1", "q3") else row for row in ROWS]
    source = write(tmp_path / "rows.jsonl", rows)
    assert load(source).problems == (PROBLEMS[0], PROBLEMS[2])
    assert "2 problems" in caplog.text
    assert "row 2" in caplog.text
    with pytest.raises(ValueError, match="no problems with an answer"):
        load(write(tmp_path / "all.jsonl", rows[1:2]))


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)  # blanks, line ends, byte order marks, any form of Unicode
SPACED = st.tuples(
    st.sampled_from(["", " ", "\t", "\r\n", "\ufeff"]), TEXT, st.sampled_from(["", " ", "\n", "\r\n\r\n"])
)
CELLS = (
    TEXT | SPACED.map("".join) | st.sampled_from(["e\u0301", "\u00e9", "007", "1.50", "null", "true", "NaN", "a,b\t;"])
)
COLUMNS = [CELLS, st.integers(-(2**62), 2**62), st.floats(allow_nan=False, allow_infinity=False)]
OTHER = [
    st.booleans(),
    st.none() | st.booleans(),
    st.dates(),
    st.lists(st.integers(-9, 9)),
    st.fixed_dictionaries({"x": CELLS}),
]
OF_JSON = [0, 1, 3]  # of them, those that JSON has


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]]]:
    """A format, and rows with ids of their own, which it can hold; in JSON a column mixes types."""
    kind, size = (
        draw(st.sampled_from(["jsonl", "json", "gz", "csv", "parquet", "function"])),
        draw(sizes_of_rows),
    )
    has_types = kind == "parquet"
    usual = [draw(st.sampled_from(names)) for names in (ID_COLUMNS[:3], PROMPT_COLUMNS, ANSWER_COLUMNS[:2])]
    values = [draw(st.sampled_from(COLUMNS)) if has_types else st.one_of(COLUMNS) for _ in usual]
    other = draw(st.sampled_from(OTHER if has_types or kind == "function" else [OTHER[i] for i in OF_JSON]))
    rows = [
        {name: draw(one) for name, one in zip((*usual, "other"), (*values, other), strict=True)} for _ in range(size)
    ]
    for number, row in enumerate(rows):
        is_text = isinstance(row[usual[0]], str) or not has_types
        row[usual[0]] = f"{row[usual[0]]}{number}" if is_text else number
    return kind, rows


sizes_of_rows = st.integers(1, 4)
ROW_SETS: dict[str, list[dict[str, Any]]] = {}


def rows_of(name: str) -> Iterator[dict[str, Any]]:
    """Yield one object that changes, as a careless function does."""
    one: dict[str, Any] = {}
    for row in ROW_SETS[name]:
        one.update(row)
        yield one


def written(folder: Path, kind: str, rows: list[dict[str, Any]]) -> str:
    path = folder / f"rows.{kind}"
    if kind == "function":
        ROW_SETS["rows"] = rows
        return f"{__name__}:rows_of?rows"
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif kind == "csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, [*rows[0]])
            table.writeheader()
            table.writerows(rows)
    else:
        content = json.dumps(rows) if kind == "json" else "".join(json.dumps(row) + "\n" for row in rows)
        path.write_bytes(gzip.compress(content.encode()) if kind == "gz" else content.encode())
    return str(path)


@given(tables())
def test_data_are_read_as_they_are_written(tmp_path_factory: pytest.TempPathFactory, table: tuple[str, Any]) -> None:
    """Text and numbers of every format, to the character; only what is blank, and cells that are JSON, are no text."""
    kind, rows = table
    source = written(tmp_path_factory.mktemp("rows"), kind, rows)
    wanted = [tuple(str(value) for value in [*row.values()][:3]) for row in rows]
    blank = any(not problem.strip() for _, problem, _ in wanted) or not any(answer.strip() for *_, answer in wanted)
    if blank or (kind == "csv" and any(is_json(cell) for row in wanted for cell in row)):
        with pytest.raises(ValueError, match=r"row \d|no problems with an answer"):
            load(source)
        return
    found = load(source).problems
    assert [(one.id, one.problem, one.answer) for one in found] == [row for row in wanted if row[2].strip()]
    if kind != "csv":
        kept = [row for row, (*_, answer) in zip(rows, wanted, strict=True) if answer.strip()]
        assert [dict(one.example) for one in found] == kept


def is_json(cell: str) -> bool:
    try:
        return cell.startswith(("[", "{")) and json.loads(cell) is not None
    except ValueError:
        return False


USUAL = ("id", "unique_id", "problem", "question", "answer", "gold", "data_source")


@given(
    rows=st.lists(st.dictionaries(st.sampled_from(USUAL), st.sampled_from(["1", "2", None])), min_size=1, max_size=4),
    chances=st.randoms(use_true_random=False),
)
def test_a_source_has_one_rule_whichever_row_comes_first(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], chances: random.Random
) -> None:
    """Whichever fields its rows lack: the same problems in every order, each from the same columns, or a refusal."""
    folder, found = tmp_path_factory.mktemp("rows"), []
    for _ in range(2):
        chances.shuffle(rows)
        try:
            problems = load(write(folder / "rows.jsonl", rows))
        except ValueError:
            found.append(None)
            continue
        found.append((problems.id_source, {(one.id, one.problem, one.answer) for one in problems.problems}))
        columns = [{name for name in USUAL if name in one.example} for one in problems.problems]
        for usual in (USUAL[:2], USUAL[2:4], USUAL[4:6]):
            assert any(all(name in one for one in columns) for name in usual)
    assert found[0] == found[1]


def test_the_toy_task_is_a_source() -> None:
    train, test = load("toy:train"), load("toy:test")
    assert len(train.problems) == 512
    assert not {problem.id for problem in train.problems} & {problem.id for problem in test.problems}
    with pytest.raises(ValueError, match=r"split of toy .* got 'tset'"):
        load("toy:tset")


def test_columns_can_be_named(tmp_path: Path) -> None:
    rows = [{"id": "not this", "key": row["id"], "text": row["problem"], "result": row["answer"]} for row in ROWS]
    source = write(tmp_path / "rows.jsonl", rows)
    assert load(source, id_key="key", prompt_key="text", answer_key="result").problems == PROBLEMS


@pytest.mark.parametrize("row", rows_of_table(__file__, "bad rows"), ids=itemgetter(1))
def test_bad_rows_are_reported_with_number_and_field(row: list[str], tmp_path: Path) -> None:
    _, change, *facts = row
    rows: list[dict[str, Any]] = [dict(one) for one in ROWS]
    rows[2].update(json.loads(change))
    with pytest.raises(ValueError, match="row 3: ") as refusal:
        load(write(tmp_path / "rows.jsonl", rows))
    assert [fact for fact in facts if fact not in str(refusal.value)] == []
    del rows[2]  # without that row all is well
    assert len(load(write(tmp_path / "rows.jsonl", rows)).problems) == 3


def test_repeated_rows_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    row = {"id": "a", "problem": "p", "answer": "1"}
    path = write(tmp_path / "data.jsonl", [row | {"tests": "T1"}, row | {"tests": "T1"}, row | {"tests": "T2"}])
    assert [problem.example["tests"] for problem in load(path).problems] == ["T1"]
    assert "2 rows repeat an id and are left out" in caplog.text
    assert "data.jsonl:3" in caplog.text or "row 3" in caplog.text


def test_conflicts_are_found_across_files(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", ROWS)
    second = write(tmp_path / "b.jsonl", [{**ROWS[0], "answer": "1"}])
    with pytest.raises(ValueError, match=r"b\.jsonl, row 1: id 'q0' was used by .*a\.jsonl, row 1 with another answer"):
        load_problems([first, second], DataConfig())


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.jsonl does not exist"):
        load(str(tmp_path / "missing.jsonl"))
    with pytest.raises(ValueError, match="split"):
        load("somebody/something")
    for name, content in (("empty.jsonl", ""), ("array.json", "[]")):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=f"{name}: no problems"):
            load(str(tmp_path / name))


def test_the_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    base = load(write(tmp_path / "a.jsonl", ROWS)).fingerprint
    (tmp_path / "elsewhere").mkdir()
    assert load(write(tmp_path / "elsewhere" / "b.jsonl", ROWS)).fingerprint == base
    variants = [
        [{**ROWS[0], "answer": "1"}, *ROWS[1:]],
        [{**ROWS[0], "problem": "?"}, *ROWS[1:]],
        [{**ROWS[0], "id": "?"}, *ROWS[1:]],
        ROWS[1:],
        ROWS[::-1],
    ]
    prints = {load(write(tmp_path / "c.jsonl", rows)).fingerprint for rows in variants}
    assert len(prints | {base}) == len(variants) + 1


@pytest.mark.parametrize(("rows", "kept"), [("[:2]", slice(2)), ("[1:3]", slice(1, 3)), ("[2:]", slice(2, None))])
def test_a_source_may_end_with_a_slice(rows: str, kept: slice, tmp_path: Path) -> None:
    found = load(write(tmp_path / "a.jsonl", ROWS) + rows)
    assert (found.problems, found.name) == (PROBLEMS[kept], "a")
    assert load(f"toy:test{rows}").problems == load("toy:test").problems[kept]


sizes = st.integers(1, 40).flatmap(lambda total: st.tuples(st.just(total), st.integers(1, total)))


@given(sizes, st.integers(0, 2**31))
def test_an_epoch_takes_every_problem_at_most_once(size: tuple[int, int], seed: int) -> None:
    total, batch = size
    order = BatchOrder(total, batch, seed)
    for epoch in range(3):
        steps = range(epoch * order.steps_per_epoch + 1, (epoch + 1) * order.steps_per_epoch + 1)
        taken = [index for step in steps for index in order.batch(step)]
        assert len(taken) == len(set(taken)) == total // batch * batch
        assert set(taken) <= set(range(total))


@given(sizes, st.lists(st.integers(1, 200), min_size=1, max_size=8))
def test_a_batch_depends_on_seed_and_step_alone(size: tuple[int, int], steps: list[int]) -> None:
    used = BatchOrder(*size, seed=3)
    in_turn = [used.batch(step) for step in steps]
    assert in_turn == [BatchOrder(*size, seed=3).batch(step) for step in steps]


def test_seeds_and_epochs_give_other_orders() -> None:
    orders = [BatchOrder(100, 100, seed=seed).batch(epoch) for seed in (0, 1) for epoch in (1, 2)]
    assert len({tuple(order) for order in orders}) == 4


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(ValueError, match=r"data\.train_batch_size must be at most .*, 4; got 5"):
        BatchOrder(4, 5, seed=0)


CONVERSATION = (Message("system", "Answer in \\boxed{}."), Message("user", " 1+1? "))


def conversation_row(index: int) -> dict[str, Any]:
    """A row as verl stores it; parquet fills the fields that other messages have with null."""
    messages = [message._asdict() for message in CONVERSATION]
    return {
        "data_source": "math",
        "prompt": messages,
        "reward_model": {"style": "rule", "ground_truth": "2"},
        "extra_info": {"index": index, "split": "train"},
    }


def test_conversations_are_read_as_verl_and_trl_store_them(tmp_path: Path) -> None:
    rows = [conversation_row(0), conversation_row(1)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "verl.parquet")
    loaded = load(str(tmp_path / "verl.parquet"))
    assert loaded.problems == tuple(Problem(f"math:{index}", " 1+1? ", "2", CONVERSATION) for index in (0, 1))
    assert loaded.id_source == "extra_info.index with the data source"
    assert loaded.problems[1].example == rows[1]
    trl = [{"prompt": row["prompt"], "answer": 2, "id": f"math:{row['extra_info']['index']}"} for row in rows]
    assert load(write(tmp_path / "trl.jsonl", trl)).problems == loaded.problems
    again = load(write(tmp_path / "hard.jsonl", [problem.row() for problem in loaded.problems]))
    assert (again.problems, again.fingerprint) == (loaded.problems, loaded.fingerprint)


def test_another_system_message_is_another_problem(tmp_path: Path) -> None:
    rows = [conversation_row(0), conversation_row(0)]
    rows[1]["prompt"][0]["content"] = "Be brief."
    with pytest.raises(ValueError, match=r"id 'math:0' was used by .*row 1 with another problem"):
        load(write(tmp_path / "rows.jsonl", rows))
    prints = {load(write(tmp_path / "rows.jsonl", [row])).fingerprint for row in rows}
    assert len(prints) == 2


def test_other_sources_may_lack_the_named_columns(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text('{"unique_id": "a", "problem": "1+1", "answer": "2", "solution": "so 2"}')
    config = DataConfig(id_key="extra_info.index", answer_key="reward_model.ground_truth")
    assert load_problems([str(path)], config, training=False).problems == (Problem("a", "1+1", "2"),)
    with pytest.raises(ValueError, match=r"lacks 'extra_info\.index'"):  # of training data they are required
        load_problems([str(path)], config)
    path.write_text('{"problem": "1+1", "answer": "2"}')
    with pytest.raises(ValueError, match=r"lacks 'id' or 'question_id' or 'unique_id'"):
        load_problems([str(path)], config, training=False)


def test_no_answer_is_needed_where_a_function_decides(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": "a", "problem": "3 4 5"}\n{"id": "b", "problem": "1 2", "answer": "7"}\n')
    with pytest.raises(ValueError, match="lacks 'answer'"):
        load_problems([str(path)], DataConfig())
    found = load_problems([str(path)], DataConfig(), needs_answers=False)
    assert [problem.answer for problem in found.problems] == ["", "7"]


def test_a_function_returns_rows(tmp_path: Path) -> None:
    path = tmp_path / "sums.py"
    path.write_text(
        "def rows(last='3'):\n"
        "    return ({'id': f'{n}', 'problem': f'{n}+1', 'answer': n + 1} for n in range(1, int(last) + 1))\n"
    )
    for source, golds in ((f"{path}:rows", ["2", "3", "4"]), (f"{path}:rows?1", ["2"])):
        found = load_problems([source], DataConfig())
        assert [problem.answer for problem in found.problems] == golds
    with pytest.raises(ValueError, match=r"sums\.py:row: .*no attribute 'row'"):
        load_problems([f"{path}:row?1"], DataConfig())


@pytest.mark.parametrize(
    ("sources", "name"),
    [
        (["a/b/rows.jsonl"], "rows"),
        (["rows.v2.jsonl.gz"], "rows.v2"),
        (["simplescaling/s1K-1.1@train"], "s1K-1.1@train"),
        (["ds.v1@validation"], "ds.v1@validation"),
        (["a/tasks.py:rows?x?p=0.5&seed=1", "toy:test"], "tasks.py:rows-x-p=0.5-seed=1+toy:test"),
        (["a/rows.jsonl.gz[:8]", "toy:test[4:]", "ds@train[:5%]"], "rows+toy:test+ds@train[:5%]"),
    ],
)
def test_names_of_sources(sources: list[str], name: str) -> None:
    assert set_name(sources) == name


def test_one_prompt_under_several_ids_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"id": f"{name}", "problem": name[0], "answer": "4"} for name in ("a1", "a2", "b1", "c1", "c2", "c3")]
    path = tmp_path / "copies.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    load_problems([str(path)], DataConfig())
    assert "2 prompts have several ids (a1 = a2, c1 = c2 = c3)" in caplog.text
    caplog.clear()
    load_problems([str(path)], DataConfig(), training=False)
    assert caplog.text == ""
