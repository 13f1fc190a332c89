"""Loading of problems with stable ids from JSONL, parquet, Hugging Face or the toy task, and the order of batches."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from outcome_rl.exploration.config import ANSWER_COLUMNS, ID_COLUMNS
from outcome_rl.files import read_jsonl
from outcome_rl.grpo.config.schema import DataConfig
from outcome_rl.grpo.types import Problem, ProblemSet
from outcome_rl.toy import DialectTask

PROMPT_COLUMNS = ("problem", "question", "prompt")


def load_problems(
    sources: Sequence[str], config: DataConfig, max_samples: int = -1, *, named_columns: bool = True
) -> ProblemSet:
    """Read, check and concatenate sources.

    Args:
        sources: files, "toy:SPLIT" or Hugging Face datasets, see `DataConfig`.
        config: column names, and `max_samples_seed`.
        max_samples: number of problems to use, drawn at random with that seed or from the start; -1 uses all.
        named_columns: False lets rows that lack a column named by `config` use the default column names.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a row without id, problem or answer (with its number), one id with two different problems or golds,
            or no rows at all.
    """
    problems: dict[str, Problem] = {}
    seen_at: dict[str, str] = {}
    for source in sources:
        for where, row in _rows(source):
            problem = Problem(
                id=_field(row, "id", config.id_key, ID_COLUMNS, where, named_columns),
                problem=_field(row, "prompt", config.prompt_key, PROMPT_COLUMNS, where, named_columns),
                answer=_field(row, "answer", config.answer_key, ANSWER_COLUMNS, where, named_columns),
            )
            known = problems.setdefault(problem.id, problem)
            if known != problem:
                differs = "answer" if known.answer != problem.answer else "problem"
                raise ValueError(
                    f"{where}: id {problem.id!r} was used by {seen_at[problem.id]} with another {differs} "
                    f"({getattr(known, differs)[:60]!r}, here {getattr(problem, differs)[:60]!r}). Ids must be unique: "
                    "exploration counts outcomes by id"
                )
            seen_at.setdefault(problem.id, where)
    chosen = _limited(tuple(problems.values()), max_samples, config.max_samples_seed)
    if not chosen:
        raise ValueError(f"{', '.join(sources)}: no problems")
    digest = hashlib.sha256(json.dumps(chosen).encode()).hexdigest()
    return ProblemSet(name=set_name(sources), problems=chosen, fingerprint=digest)


def _limited(problems: tuple[Problem, ...], count: int, seed: int | None) -> tuple[Problem, ...]:
    """At most `count` problems in their order: a uniform draw with the seed, or the first ones without one."""
    if not 0 <= count < len(problems):
        return problems
    if seed is None:
        return problems[:count]
    generator = torch.Generator().manual_seed(derive_seed(seed, "problems"))
    drawn = torch.randperm(len(problems), generator=generator)[:count]
    return tuple(problems[index] for index in sorted(drawn.tolist()))


def set_name(sources: Sequence[str]) -> str:
    """Return the name of the problems of these sources in the records."""
    return "+".join(Path(source).stem for source in sources)


def _rows(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row of a source after its location for errors."""
    name, _, split = source.partition(":")
    if name == "toy":
        rows: Sequence[Any] = DialectTask().problems(cast(Any, split or "train"))
    elif Path(source).suffix in (".jsonl", ".parquet"):
        if not Path(source).is_file():
            raise FileNotFoundError(f"data file {source} does not exist")
        if Path(source).suffix != ".parquet":
            yield from _json_rows(Path(source))
            return
        rows = _parquet_rows(source)
    else:
        rows = _hub_rows(source)
    for number, row in enumerate(rows, start=1):
        yield f"{source}, row {number}", row


def _json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    def where(number: int) -> str:
        return f"{path}, row {number}"

    for number, row in read_jsonl(path, where):
        if not isinstance(row, dict):
            raise ValueError(f"{where(number)}: expected a JSON object; got {type(row).__name__}")
        yield where(number), row


def _parquet_rows(source: str) -> Sequence[Any]:
    import pyarrow.parquet

    try:
        return cast(Sequence[Any], pyarrow.parquet.read_table(source).to_pylist())
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{source}: not valid parquet: {error}") from error


def _hub_rows(source: str) -> Sequence[Any]:
    import datasets

    name, _, split = source.partition("@")
    path, _, subset = name.partition(":")
    if not split:
        raise ValueError(
            f"{source}: not a .jsonl (a JSON object a line) or .parquet file. For a Hugging Face dataset name the "
            f"split: {source}@train; for the toy task use toy:train"
        )
    if Path(path).is_dir() and (Path(path) / "dataset_dict.json").is_file():
        splits = datasets.load_from_disk(path)
        if split not in splits:
            raise ValueError(f"{source}: the dataset has no split {split!r}; it has {', '.join(splits)}")
        return cast(Sequence[Any], splits[split])
    return cast(Sequence[Any], datasets.load_dataset(path, subset or None, split=split))


def _field(row: dict[str, Any], role: str, key: str, candidates: Sequence[str], where: str, named_columns: bool) -> str:
    if key and not named_columns and _column(row, key) is None:
        key = ""
    name = key or next((candidate for candidate in candidates if candidate in row), "")
    value = _column(row, name)
    if value is None:
        wanted = repr(key) if key else " or ".join(map(repr, candidates))
        raise ValueError(
            f"{where}: lacks {wanted} (the {role}); it has {', '.join(map(repr, row)) or 'no fields'}. "
            f"Set data.{role}_key to name the column"
        )
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{where}: field {name!r} must be text or a number; got {type(value).__name__}")
    text = str(value).strip()
    if not text:
        raise ValueError(f"{where}: field {name!r} (the {role}) is empty")
    return text


def _column(row: dict[str, Any], name: str) -> Any:
    """Return a column, or after a dot a field of a struct column, as in verl's `reward_model.ground_truth`."""
    if name in row or "." not in name:
        return row.get(name)
    outer, _, inner = name.partition(".")
    return _column(row[outer], inner) if isinstance(row.get(outer), dict) else None


class BatchOrder:
    """Order of the training problems, a pure function of seed and step, so that resuming needs no state.

    Every epoch has its own permutation; a remainder that fills no batch is left out, as in verl.
    """

    def __init__(self, num_problems: int, batch_size: int, *, shuffle: bool, seed: int) -> None:
        if batch_size > num_problems:
            raise ValueError(
                f"data.train_batch_size must be at most the number of training problems, {num_problems}; "
                f"got {batch_size}"
            )
        self.num_problems, self.batch_size, self.shuffle, self.seed = num_problems, batch_size, shuffle, seed
        self.steps_per_epoch = num_problems // batch_size

    def batch(self, step: int) -> list[int]:
        """Return the indices of the problems of batch `step`, which starts at 1."""
        epoch, position = divmod(step - 1, self.steps_per_epoch)
        order = torch.arange(self.num_problems)
        if self.shuffle:
            generator = torch.Generator().manual_seed(derive_seed(self.seed, "epoch", epoch))
            order = torch.randperm(self.num_problems, generator=generator)
        return cast(list[int], order[position * self.batch_size : (position + 1) * self.batch_size].tolist())


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Derive an independent seed for one purpose, such as the rollouts of one step, from the run's seed."""
    digest = hashlib.blake2b(json.dumps([seed, *purpose]).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
