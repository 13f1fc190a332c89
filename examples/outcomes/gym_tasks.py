"""Tasks of the package reasoning-gym: rows with stable ids, and outcomes scored where a text can do no harm.

    pip install 'reasoning-gym>=0.1.25,<0.2'
    tasks=examples/outcomes/gym_tasks.py
    outcome-rl train data.train_files="[\"$tasks:rows?countdown?size=2000&seed=1\"]" \\
        exploration.outcome=$tasks:GymTask

In your own loop or in TRL, `rows("countdown?size=2000&seed=1")` makes the same rows, which `datasets.Dataset.from_list`
takes, and `Explorer(outcome=GymTask)` scores them.

- **Ids** depend on the task, its settings and the position, not on the size: counts stay valid when a source grows.
- **Seeds**: reasoning-gym draws row i of most tasks from `seed + i`. Keep the seeds of training and test data further
  apart than their sizes, `seed=1` and `seed=1000001`.
- **Answers** stand in `<answer>` tags, or are the final answer. Ask for that in `data.prompt_template`.
- **Outcomes**: in countdown and puzzle24 the expression up to the order of operands and the grouping of sums and
  products, so `3*(50-8)+2` and `2 + (50 - 8) × 3` are one; elsewhere the text, without spaces at the ends of lines.
- A scorer makes its task once per response: milliseconds, but two seconds for `group_anagrams` and the ARC tasks.

Scorers of reasoning-gym 0.1.25 evaluate answers: `score_answer("__import__('os').system('...')", entry)` of countdown
runs the command. Here countdown and puzzle24 are scored by our own parser of arithmetic. Every other task keeps its
scorer, in its own process with limits, in which compiling, executing, starting programs, connecting and writing
files raise. A task whose scorer needs one of these, or calls nonsense correct, is refused when its rows are made: with
version 0.1.25 ten of 105.
"""

import ast
import json
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl

import reasoning_gym
from expressions import parse  # beside this file

from outcome_rl import Outcome, OutcomeKind, extract_answer
from outcome_rl.outcomes.extraction.response import MAX_CHARS
from outcome_rl.outcomes.isolated import isolated

# Answers that are right in no task, and that scorers which evaluate text try to evaluate.
_PROBES = ("?", "1 + 1", "x**2", "[1, 2]", "[[1, 2], [3, 4]]", "(1, 2)", "{1: 2}", "'a'")
_FORBIDDEN = ("compile", "exec", "subprocess.Popen", "socket.connect", "ctypes.dlopen", "shutil.", "os.", "pickle.")
_READS = ("os.listdir", "os.scandir", "os.walk", "os.fwalk")
_guard: dict[str, list[str] | None] = {}  # "events": refused ones while an answer is scored, else None


def rows(source: str) -> list[dict[str, Any]]:
    """Make the rows of a task.

    Args:
        source: the task's name and, after "?", its settings joined by "&": "countdown?size=2000&seed=1&max_value=50".
            Without a size there are 500 rows; without a seed it is 0, so that a source always has the same rows.

    Returns:
        One mapping per question: `id`, which depends on neither size nor other rows, `problem`, `answer` (empty where
        the task names none), and `task` and `metadata`, text from which `outcome` scores.
        `datasets.Dataset.from_list` takes them.

    Raises:
        ValueError: there is no such task or setting, the task makes other rows at every call or for every size, or its
            scorer evaluates answers as code, or calls nonsense correct.
    """
    name, settings = _read(source)
    size, seed = settings.pop("size", 500), settings.pop("seed", 0)
    tasks = sorted(reasoning_gym.factory.DATASETS)
    if name not in tasks:
        raise ValueError(f"reasoning_gym has no task {name!r}; it has {', '.join(tasks)}")
    try:
        dataset = reasoning_gym.create_dataset(name, size=size, seed=seed, **settings)
        entries = list(dataset)
    except (TypeError, AssertionError, ValueError) as error:
        raise ValueError(f"{source}: {error}. Correct the settings of the task") from error
    task = "&".join([f"{name}?seed={seed}", *(f"{key}={json.dumps(value)}" for key, value in sorted(settings.items()))])
    made = [
        {
            "id": f"{task}#{index}",
            "problem": entry["question"],
            "answer": str(entry["answer"] or ""),
            "task": task,
            "metadata": repr(_plain(entry["metadata"])),
        }
        for index, entry in enumerate(entries)
    ]
    if made:
        _check_repeats(name, made, seed, settings)
        if name not in OWN:
            _check_scorer(dataset, made[0])
    return made


def _check_repeats(name: str, made: list[dict[str, Any]], seed: int, settings: Mapping[str, Any]) -> None:
    """Refuse a task whose first rows are others at another call or for another size: counts belong to ids."""
    size = 3 if len(made) != 3 else 4
    again = reasoning_gym.create_dataset(name, size=size, seed=seed, **settings)
    if any(row["problem"] != entry["question"] for row, entry in zip(made, again, strict=False)):
        raise ValueError(
            f"reasoning_gym's task {name!r} makes other problems at every call or for every size, so its ids name no "
            "questions. Write its rows into a file once, with ids, and train on that"
        )


def scored_outcome(response: str, example: Mapping[str, Any]) -> Outcome | None:
    """Return whether a response is correct, and its answer in normal form; `GymTask` calls it, in processes.

    The answer is the text in the last `<answer>` tags, else the final answer. Its normal form is the commutative form
    of the expression in countdown and puzzle24, else the text without spaces at the ends of its lines.
    """
    start, end = _final(response)
    text = response[start:end]
    if not text.strip():
        return None
    name, settings = _read(example["task"])
    own = OWN.get(name)
    if own is None:
        dataset = reasoning_gym.create_dataset(name, size=1, **settings)
        correct, form = _score(dataset, text, example) >= 1, _tidy(text)
    else:
        correct, form = own(text, ast.literal_eval(example["metadata"]))
    return Outcome((correct, form), start, end)


class GymTask(OutcomeKind):
    """The outcomes of all tasks: `(whether it is correct, the answer's normal form)`."""

    rule = "gym/1"
    needs_gold = False
    outcome = isolated(scored_outcome)

    def is_correct(self, outcome: Outcome, gold: str, row: Mapping[str, Any]) -> bool:
        return bool(outcome.value[0])


def _arithmetic(text: str, numbers: list[int], target: int) -> tuple[bool, str]:
    try:
        expression = parse(text.partition("=")[0])
    except ValueError:
        return False, _tidy(text)
    return expression.value == target and expression.numbers == tuple(sorted(numbers)), expression.form


OWN = {
    "countdown": lambda text, metadata: _arithmetic(text, metadata["numbers"], metadata["target"]),
    "puzzle24": lambda text, metadata: _arithmetic(text, metadata["numbers"], 24),
}
"""Tasks that are scored here: name -> `(answer, metadata) -> (correct, normal form)`."""


def _final(response: str) -> tuple[int, int]:
    opened = response.rfind("<answer>")
    closed = response.find("</answer>", opened)
    if opened >= 0 and closed >= 0:
        return opened + len("<answer>"), min(closed, opened + MAX_CHARS)
    answer = extract_answer(response)
    return (0, 0) if answer is None else (answer.start, answer.end)


def _tidy(text: str) -> str:
    lines = unicodedata.normalize("NFKC", text).strip().splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _score(dataset: Any, text: str, example: Mapping[str, Any]) -> float:
    entry = {
        "question": example["problem"],
        "answer": example["answer"] or None,
        "metadata": ast.literal_eval(example["metadata"]),
    }
    if entry["answer"]:
        dataset.score_answer(entry["answer"], entry)  # imports what the scorer needs
    with _no_code():
        return float(dataset.score_answer(_tidy(text), entry))


def _check_scorer(dataset: Any, row: Mapping[str, Any]) -> None:
    for probe in _PROBES:
        try:
            score = _score(dataset, probe, row)
            fault = f"calls {probe!r} correct where the answer is {row['answer'][:60]!r}" if score >= 1 else ""
        except _CodeTried as error:
            fault = f"evaluates answers as code ({error.event})"
        except Exception:  # noqa: BLE001 - scorers raise anything
            continue
        if fault:
            raise ValueError(
                f"{_read(row['task'])[0]}: its scorer {fault}. Choose another task, or write its rows to "
                "a file and pass your own functions"
            )


class _CodeTried(RuntimeError):
    """A scorer tried on an answer what could run or change something."""

    def __init__(self, event: str) -> None:
        super().__init__(f"{event} is not allowed while an answer is scored")
        self.event = event


@contextmanager
def _no_code() -> Iterator[None]:
    """Refuse every event that could run or change something; raise `_CodeTried` also where the scorer swallows that."""
    if not _guard:
        _guard["events"] = None
        sys.addaudithook(_watch)  # it cannot be removed
    events: list[str] = []
    _guard["events"] = events
    try:
        yield
    finally:
        _guard["events"] = None
        if events:
            raise _CodeTried(events[0])


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    events = _guard["events"]
    if events is None:
        return
    writes = event == "open" and (any(flag in (arguments[1] or "") for flag in "wax+") or arguments[2] & 0o3)
    if writes or (event.startswith(_FORBIDDEN) and event not in _READS):
        events.append(event)
        raise _CodeTried(event)


def _plain(value: Any) -> Any:
    """Return metadata whose `repr` is a literal, with numpy's scalars as Python's."""
    if isinstance(value, Mapping):
        return {_plain(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(map(_plain, value))
    return value.item() if hasattr(value, "item") else value


def _read(source: str) -> tuple[str, dict[str, Any]]:
    """Return a task's name and its settings."""
    name, _, query = source.partition("?")
    if not query:
        return name, {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    except ValueError as error:
        raise ValueError(f"{source}: settings are name=value, joined by '&'; got {query!r}") from error
    return name, {key: _value(text) for key, text in pairs}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
