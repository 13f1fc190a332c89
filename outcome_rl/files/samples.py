"""Files of samples: questions with their answers and labels, from the formats that tools write.

A row is read by the names of its fields. `NAMES` has the usual names of each role, in the order in which they are
tried; `Fields` gives other names. A row has

- the question: an id, or a prompt, whose hash is then the id; rows of a question may be anywhere in the file;
- its samples: a list of texts, of messages, or of objects with a text or an extracted `answer`; or one of them;
- a gold answer and a label or reward of each sample, where the file has them.

`TOOLS` names the tool by fields that only its rows have; four of them need more than names (`_CONVERTED`).

The field `answer` of a sample is the answer that its source extracted (null: none). It is used unchanged, because
published `text` is often cut short or left out.
"""

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from outcome_rl.files.rows import ID_COLUMNS, PROMPT_COLUMNS, as_text, field_names, find, id_of_row, read_objects
from outcome_rl.outcomes.matcher import OutcomeMatcher
from outcome_rl.questions import question_id as question_id_of

NAMES: dict[str, tuple[str, ...]] = {
    "id": (*ID_COLUMNS, "doc_id"),
    "prompt": (*PROMPT_COLUMNS, "input", "full_prompt", "doc.query"),
    "gold": (
        *("gold", "answer", "reward_model.ground_truth", "solution", "ground_truth", "target", "expected_answer"),
        *("gts", "gt"),
    ),
    "samples": (
        *("samples", "completions", "responses", "generations", "outputs", "code", "predictions"),
        *("response", "completion", "generation", "output", "messages"),
        "choices",  # also the options of a multiple-choice question
    ),
    "reward": (
        *("correct", "is_correct", "symbolic_correct", "exploration/correct", "correctness_math_verify"),
        *("score", "reward"),
    ),
}
"""Role -> usual names of its field; a dot leads into a struct. A list of samples comes before one sample."""

TEXTS = ("text", "response", "completion", "content", "message", "generation", "output")
"""Names of the text in an object of a sample."""

TOOLS: dict[str, tuple[str, ...]] = {
    "lm-evaluation-harness": ("resps", "target"),
    "lighteval": ("doc", "model_response"),
    "lighteval, older details": ("predictions", "full_prompt"),
    "verl's rollouts": ("input", "output", "gts"),
    "TRL's completions with outcome_rl": ("prompt", "completion", "exploration/outcome"),
    "TRL's completions": ("prompt", "completion", "advantage"),
    "an OpenAI batch": ("custom_id", "response"),
    "vLLM's outputs": ("prompt", "outputs"),
    "Qwen2.5-Math": ("gt", "code"),
    "NeMo-Skills": ("generation", "expected_answer"),
    "Open-R1": ("generations",),
}
"""Tool -> the fields by which its rows are told from others, the first tool that fits."""

THRESHOLD = 0.5  # a reward above it is correct: a reward of .1 for the format alone is not


class Fields(NamedTuple):
    """Names of fields that the caller gives; an empty name is looked for among the usual ones."""

    id: str = ""
    prompt: str = ""
    samples: str = ""
    gold: str = ""
    reward: str = ""


@dataclass(frozen=True)
class Question:
    """One question of a file: its gold answer, and answers and labels of its samples, in file order."""

    question_id: str
    gold: str | None  # None: the file has none
    answers: list[str | None]  # or texts, for an outcome function
    labels: list[bool | None]  # correctness by the file's source; None if it has none
    example: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)  # its first row


class SampleFile(NamedTuple):
    """Questions in the order in which their ids first appear, and remarks on how the file was read."""

    questions: list[Question]
    remarks: list[str]


def read_sample_file(
    path: str | Path,
    *,
    fields: Fields | None = None,
    threshold: float = THRESHOLD,
    from_text: bool = False,
    extract: Callable[[str], str | None] | None = None,
) -> SampleFile:
    """Read a file of samples.

    Args:
        path: as for `rows.read_objects`.
        fields: names of fields, where they are unusual.
        threshold: a number above it, of the reward, means correct; true and false need none.
        from_text: extract every answer from the sample's text, even if the sample has an `answer`.
        extract: from text to answer; None takes the final answer.

    Returns:
        The questions, each with at least one sample, and remarks: the tool and the fields that were read, and how many
        samples were skipped because they are null.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a field is missing (the error lists those that are there) or of the wrong type, there are no
            samples, or two gold answers or prompts for one question id. The message starts with file and row.
    """
    reader = _Reader(fields or Fields(), threshold, from_text, extract or OutcomeMatcher.extract)
    filters: set[Any] = set()
    for where, row in read_objects(path):
        filters.update([row["filter"]] if "resps" in row and "filter" in row and not filters else [])
        if "resps" in row and filters and row.get("filter") not in filters:
            continue  # the same samples again, under another filter of lm-evaluation-harness
        reader.add(row, where)
    if not reader.questions:
        nulls = " but null samples" if reader.skipped else ""
        raise ValueError(f"{path}: has no rows{nulls}. Write one JSON object per line, or one JSON array of objects")
    return SampleFile(list(reader.questions.values()), reader.remarks())


class _Reader:
    """Adds rows to questions, and remembers what a user should know of it."""

    def __init__(self, fields: Fields, threshold: float, from_text: bool, extract: Callable[[str], str | None]) -> None:
        self.given, self.threshold, self.from_text, self.extract = fields, threshold, from_text, extract
        self.questions: dict[str, Question] = {}
        self.skipped = self.joined = self.unlabelled = 0
        self._used: Counter[str] = Counter()  # role and field -> rows
        self._tool = ""
        self._seen_at: dict[str, str] = {}
        self._prompts: dict[str, Any] = {}

    def add(self, read: Mapping[str, Any], where: str) -> None:
        tool = next((name for name, needed in TOOLS.items() if all(one in read for one in needed)), "")
        self._tool = self._tool or tool
        row = _CONVERTED[tool](read, where) if tool in _CONVERTED else read
        question_id, prompt = self._id(row, where)
        gold = self._gold(row, where)
        several, samples = self._samples(row, where)
        labels = self._labels(row, len(samples) if several else None, where)
        known = self.questions.get(question_id)
        if known is None:
            known = self.questions[question_id] = Question(question_id, gold, [], [], row)
            self._seen_at[question_id], self._prompts[question_id] = where, prompt
        else:
            self._check_same(known, gold, prompt, where)
            self.joined += several
        for index, sample in enumerate(samples):
            place = f"{where}: sample {index}" if several else where
            if sample is None:
                self.skipped += 1
                continue
            found = self._answer(sample, place)
            label = labels[index] if labels is not None else self._label_of(sample, row, place)
            self.unlabelled += label is None
            known.answers.append(found)
            known.labels.append(label)
        if not known.answers:  # all of its samples so far are null
            del self.questions[question_id]

    def remarks(self) -> list[str]:
        """Return sentences on how the file was read, for the first line of a report and below it."""
        fields = ", ".join(role_and_field for role_and_field, _ in self._used.most_common())
        found = [f"read as {self._tool or 'rows of samples'} ({fields})"]
        if self.skipped:
            found.append(f"null samples, which are skipped: {self.skipped}")
        if self.joined:
            found.append(f"rows with the id of an earlier row, which count as samples of its question: {self.joined}")
        if self.unlabelled and any(label is not None for one in self.questions.values() for label in one.labels):
            found.append(f"samples without a label: {self.unlabelled}")
        return found

    def _named(self, role: str, row: Mapping[str, Any]) -> str:
        """Return the name of a role's field in a row, or "" where it has none."""
        given = str(getattr(self.given, role))
        names = (given,) if given else NAMES[role]
        for name in names:
            if find(row, name, _MISSING) is not _MISSING and (
                given or role != "samples" or _is_sample(find(row, name))
            ):
                self._used[f"{role}: {name}"] += 1
                return name
        return ""

    def _lacks(self, role: str, row: Mapping[str, Any], where: str) -> ValueError:
        given = str(getattr(self.given, role))
        has = [*field_names(row)]
        near = difflib.get_close_matches(given, has, n=3, cutoff=0.6) if given else []
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
        usual = repr(given) if given else f"{' or '.join(map(repr, NAMES[role][:3]))}"
        return ValueError(
            f"{where}: lacks {usual} (the {role}); it has {', '.join(map(repr, has)) or 'no fields'}{hint} Name the "
            f"field: --{role} FIELD"
        )

    def _id(self, row: Mapping[str, Any], where: str) -> tuple[str, Any]:
        """Return the id of a row, by default the hash of its prompt as the trainers take it, and the prompt."""
        asked = self._named("prompt", row)
        prompt = find(row, asked) if asked else None
        name = "" if self.given.prompt and not self.given.id else self._named("id", row)
        if name and (find(row, name) is not None or prompt is None):
            return id_of_row(row, (name,), where, "Give every question its own id, or its prompt")[0], prompt
        if prompt is None:
            raise self._lacks("id", row, where)
        return question_id_of(prompt), prompt

    def _gold(self, row: Mapping[str, Any], where: str) -> str | None:
        name = self._named("gold", row)
        if not name and self.given.gold:
            raise self._lacks("gold", row, where)
        value = find(row, name) if name else None
        if isinstance(value, list) and len(set(map(str, value))) == 1:
            value = value[0]
        return None if value is None else as_text(value, name, "gold answer", where)

    def _samples(self, row: Mapping[str, Any], where: str) -> tuple[bool, Sequence[Any]]:
        """Return whether a row has a list of samples, and the samples."""
        name = self._named("samples", row)
        if not name:
            present = [one for one in NAMES["samples"] if find(row, one, _MISSING) is not _MISSING]
            if present and not self.given.samples:  # of the wrong type
                value = find(row, present[0])
                if value is None:
                    return False, [None]
                raise ValueError(
                    f"{where}: field {present[0]!r} must be text or a list of samples; got {type(value).__name__}. "
                    "Name another field: --samples FIELD"
                )
            raise self._lacks("samples", row, where)
        value = find(row, name)
        if isinstance(value, list) and not _is_conversation(value):
            if not value:
                raise ValueError(f"{where}: field {name!r} must be a list of at least one sample; got []")
            return True, [one[0] if isinstance(one, list) and len(one) == 1 else one for one in value]
        return False, [value]

    def _labels(self, row: Mapping[str, Any], count: int | None, where: str) -> list[bool | None] | None:
        """Return the labels that stand in the row; None where they may stand in the samples."""
        name = self._named("reward", row)
        value = find(row, name) if name else None
        if not name or (value is None and count is not None):
            return None
        if count is None:
            return [self._label(value, name, where)]
        if not isinstance(value, list) or len(value) != count:
            raise ValueError(
                f"{where}: field {name!r} must be a list of {count} labels, one per sample; got {str(value)[:80]!r}. "
                "Leave it out, or put it into the samples"
            )
        return [self._label(one, name, f"{where}: {name}[{index}]") for index, one in enumerate(value)]

    def _label_of(self, sample: Any, row: Mapping[str, Any], where: str) -> bool | None:
        """Return the label in a sample; a field that was named must be in every sample or row, but may be null."""
        name = self._named("reward", sample) if isinstance(sample, Mapping) else ""
        if name:
            return self._label(find(sample, name), name, where)
        if self.given.reward:
            fields = {**row, **sample} if isinstance(sample, Mapping) else row
            raise self._lacks("reward", fields, where)
        return None

    def _label(self, value: Any, name: str, where: str) -> bool | None:
        if isinstance(value, str):  # a cell of a CSV file
            value = {"true": True, "false": False, "": None}.get(value.strip().lower(), value)
            value = _number(value) if isinstance(value, str) else value
        if value is None or isinstance(value, bool):
            return value
        if not isinstance(value, int | float) or value != value:
            raise ValueError(
                f"{where}: field {name!r} must be a number, true, false or null; got {str(value)[:80]!r}. Correct it, "
                "or name another field: --reward FIELD"
            )
        return bool(value > self.threshold)

    def _answer(self, sample: Any, where: str) -> str | None:
        if isinstance(sample, Mapping) and "answer" in sample and not self.from_text:
            value = sample["answer"]
            return None if value is None else as_text(value, "answer", "answer of a sample", where)
        return self.extract(_text(sample, where))

    def _check_same(self, known: Question, gold: str | None, prompt: Any, where: str) -> None:
        """Check that two rows with one id are of one question."""
        id_, first = known.question_id, self._seen_at[known.question_id]
        if known.gold != gold:
            raise ValueError(
                f"{where}: the gold answer of id {id_!r} must be {known.gold!r}, as in {first}; got {gold!r}. Give "
                "different questions different ids"
            )
        if prompt is not None and self._prompts[id_] is not None and prompt != self._prompts[id_]:
            raise ValueError(
                f"{where}: id {id_!r} has another prompt in {first}. Give different questions different ids, or leave "
                "the ids out with --prompt FIELD"
            )


_MISSING = object()


def _is_conversation(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) and "role" in one for one in value)


def _is_sample(value: Any) -> bool:
    """Return whether a value is a list of samples or one sample."""
    return isinstance(value, str | list)


def _text(sample: Any, where: str) -> str:
    """Return the text of a sample: itself, its text field, or what the assistant said last."""
    if isinstance(sample, str):
        return sample
    if _is_conversation(sample):
        said = [one for one in sample if one["role"] == "assistant"] or sample
        return _text(said[-1], where)
    if not isinstance(sample, Mapping):
        raise ValueError(
            f"{where}: expected text, messages, or an object with {TEXTS[0]!r} or 'answer'; got "
            f"{type(sample).__name__}. Write the response as text"
        )
    name = next((one for one in TEXTS if one in sample), None)
    if name is None:
        raise ValueError(
            f"{where}: lacks {' or '.join(map(repr, TEXTS[:4]))} (the text); it has "
            f"{', '.join(map(repr, sample)) or 'no fields'}. Rename a field, or give an 'answer'"
        )
    inner = sample[name]
    return "" if inner is None else _text(inner, where)


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _from_harness(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Read a row of lm-evaluation-harness: `resps` is a list of lists; a metric of 0 or 1 labels one sample."""
    with _named_errors("lm-evaluation-harness", where):
        texts = [text for one in row["resps"] for text in (one if isinstance(one, list) else [one])]
        metrics = {name: row.get(name) for name in row.get("metrics") or ["exact_match"]}
        doc = row["doc"] if isinstance(row.get("doc"), Mapping) else {}
        usual = {"id": row.get("doc_id"), "gold": row["target"], "samples": texts}
        return {**doc, **usual, **_metric_label(metrics, texts)}


def _from_lighteval(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Read a row of lighteval's details: the gold is a choice, by its index."""
    with _named_errors("lighteval", where):
        doc, texts = row["doc"], list(row["model_response"]["text"])
        found = {"gold": _chosen(doc["choices"], doc.get("gold_index"), where), "samples": texts}
        found |= {"id": doc["id"]} if doc.get("id") else {}
        found |= {"prompt": doc["query"]} if doc.get("query") else {}
        return found | _metric_label(row.get("metric") or {}, texts)


def _from_older_lighteval(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Read a row of lighteval's older details: `gold` is text, a list, or an index into `choices`."""
    with _named_errors("lighteval", where):
        texts, gold = row["predictions"], row.get("gold")
        if gold is None:
            gold = _chosen(row["choices"], row["gold_index"], where)
        found = {"prompt": row["full_prompt"], "gold": gold, "samples": [texts] if isinstance(texts, str) else texts}
        return found | _metric_label(row.get("metrics") or {}, found["samples"])


def _chosen(choices: Sequence[Any], index: Any, where: str) -> Any:
    golds = [choices[i] for i in (index if isinstance(index, list) else [index])]
    if len(set(golds)) > 1:
        raise ValueError(
            f"{where}: must have one gold answer; lighteval's gold_index names {len(golds)}, such as {golds[:3]}. "
            "Leave the row out, or score it with the metric of the file"
        )
    return golds[0]


def _metric_label(metrics: Mapping[str, Any], texts: Sequence[Any]) -> dict[str, Any]:
    """Return the label of one sample by the first metric that calls it right or wrong."""
    scores = [score for score in metrics.values() if score in (0, 1)]
    return {"correct": [bool(scores[0])]} if len(texts) == 1 and scores else {}


@contextmanager
def _named_errors(tool: str, where: str) -> Iterator[None]:
    """Turn an error of a tool's row into one that names tool and row."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(
            f"{where}: a row of {tool} without a gold answer or responses where they usually are ({error!r}). Name the "
            "fields: --gold FIELD --samples FIELD"
        ) from error


def _from_batch(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Read a row of an OpenAI batch: its `id` is another one in every batch; a request that failed has no choices."""
    with _named_errors("an OpenAI batch", where):
        answered = row["response"] is not None and row["response"]["status_code"] == 200
        samples = row["response"]["body"]["choices"] if answered else None
        return {**row, "id": row["custom_id"], "samples": samples}


_CONVERTED: dict[str, Callable[[Mapping[str, Any], str], dict[str, Any]]] = {
    "lm-evaluation-harness": _from_harness,
    "lighteval": _from_lighteval,
    "lighteval, older details": _from_older_lighteval,
    "an OpenAI batch": _from_batch,
}
