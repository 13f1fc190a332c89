"""Files of samples: questions with their answers and labels, from the formats that tools write.

A row is read by the names of its fields: `NAMES` has the usual names of each role, in the order in which they are
tried, `TOOLS` those of tools whose rows need others, and `Fields` the caller's. A row has

- the question: an id, or a prompt, whose hash is then the id; rows of a question may be anywhere in the file;
- its samples: a list of texts, of messages, or of objects with a text or an extracted `answer`; or one of them;
- a gold answer and a label or reward of each sample, where the file has them.

The field `answer` of a sample is the answer that its source extracted (null: none). It is used unchanged, because
published `text` is often cut short or left out. Where most samples of a file are no responses but bare answers, such as
`7\\pi`, they are read as such.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from outcome_rl.files.formats import EITHER, EXTRACTED, NAMES, ROW, SHORT, THRESHOLD, TOOLS, WORDED, snake
from outcome_rl.files.rows import as_text, find, id_of_row, read_objects, some_names
from outcome_rl.files.texts import (
    FITS,
    are_options,
    before_answer,
    choices_of,
    is_conversation,
    is_letter,
    is_one,
    is_sample,
    is_text,
    named_choice,
    number_of,
    short,
    text_of,
)
from outcome_rl.outcomes.keys import Tag, canonical_text
from outcome_rl.outcomes.matcher import answer_text
from outcome_rl.questions import question_id as question_id_of


class Fields(NamedTuple):
    """How the caller says a file is read; an empty name of a field is looked for among the usual ones."""

    id: str = ""
    prompt: str = ""
    samples: str = ""
    gold: str = ""
    reward: str = ""
    rows: str = ""  # field of a JSON object that holds its rows
    id_part: str = ""  # expression whose first group is the part of an id that names the question
    threshold: float = THRESHOLD  # a number above it, of the reward, means correct; true and false need none
    has_golds: bool = True  # False takes no field for a gold answer


@dataclass(frozen=True)
class Question:
    """One question of a file: its gold answer, and answers and labels of its samples, in file order."""

    question_id: str
    gold: str | None  # None: the file has none
    answers: list[str | None]  # or texts, for an outcome function
    labels: list[bool | None]  # correctness by the file's source; None if it has none
    example: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)  # its first row


class SampleFile(NamedTuple):
    """Questions in the order in which their ids first appear, and how the file was read."""

    questions: list[Question]
    remarks: list[str]
    unused: set[str]  # options that had no effect


def read_sample_file(
    *paths: str | Path,
    fields: Fields | None = None,
    from_text: bool = False,
    extract: Callable[[str], str | None] | None = None,
) -> SampleFile:
    """Read a file of samples, or several as one.

    Args:
        paths: as for `rows.read_objects`.
        fields: names of fields, where they are unusual.
        from_text: extract every answer from the sample's text, even if the sample has an `answer`.
        extract: from text to answer; None takes the final answer.

    Returns:
        The questions, each with at least one sample, remarks, and the options without effect.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: fields are missing (the error names all of them and suggests others) or of the wrong type, there are
            no samples, or two gold answers or prompts for one question id. The message starts with file and row.
    """
    reader = _Reader(fields or Fields(), from_text, extract or answer_text)
    filters: dict[str, Any] = {}  # of the tasks of lm-evaluation-harness, which has the same samples under each filter
    found = chain.from_iterable(read_objects(path, reader.given.rows) for path in paths)
    head = list(islice(found, 2))
    usual = head[-1][1].keys() if head else ()
    for where, row in chain(head, found):
        if row.keys().isdisjoint(usual):  # such as a header with the prompt of a run
            reader.note("rows whose fields are others, which are left out")
            continue
        if "resps" in row and filters.setdefault(str(row.get("data_source")), row.get("filter")) != row.get("filter"):
            continue
        reader.add(row, where)
    if not reader.questions:
        raise ValueError(f"{paths[0]}: has no rows with samples. Write one JSON object per line, or one JSON array")
    remarks = reader.remarks()  # these also read bare answers
    return SampleFile(list(reader.questions.values()), remarks, reader.unused())


class _Reader:
    """Adds rows to questions, and remembers what a user should know of it."""

    def __init__(self, fields: Fields, from_text: bool, extract: Callable[[str], str | None]) -> None:
        self.given, self.from_text, self.extract = fields, from_text, extract
        self.questions: dict[str, Question] = {}
        self.rows = self._long = self._parts = self._compared = 0
        self._left_out: Counter[str] = Counter()
        self._used: Counter[str] = Counter()  # role and field -> rows
        self._tool = ""
        self._seen_at: dict[str, str] = {}
        self._prompts: dict[str, Any] = {}
        self._words: dict[str, list[str]] = {}  # role -> fields of the first row whose names have its words
        self._either = ""  # the field of an answer or a solution that is the sample, in the first row
        self._kinds: dict[str, dict[str, None]] = {}  # field of a model or a turn -> its values
        self._graded: set[str] = set()  # fields of numbers and verdicts that decide nothing by themselves
        self._short: dict[tuple[str, int], str] = {}  # id and index of a sample without an answer -> its short text
        self._empty: dict[str, bool] = {}  # role -> whether no value of it is usable
        self._no_golds: set[str] = set()  # ids of questions whose gold answer is left out
        self._choices: dict[str, dict[str, str]] = {}

    def add(self, read: Mapping[str, Any], where: str) -> None:
        row = {**{snake(name): value for name, value in read.items()}, **read}
        tools = (name for name, (needs, _) in TOOLS.items() if None not in [find(read, one) for one in needs])
        tool = next(tools, "")
        self._tool, self.rows = self._tool or tool, self.rows + 1
        names = {role: self._find(role, row, tool, where) for role in NAMES}
        if not self.given.has_golds:
            names["gold"] = None
        if self.given.prompt and not self.given.id:
            names["id"] = None
        if not tool:
            self._find_by_words(names, row)
        if names["samples"] is None and read.get("error") and not self.given.samples:
            names["samples"] = "", None  # a request that failed
        self._check_complete(names, read, where)
        self._used.update(f"{role}: {found[0]}" for role, found in names.items() if found and found[0] not in ("", ROW))
        prompt = names["prompt"][1] if names["prompt"] else None
        question_id = self._id(names["id"], prompt, row, where)
        for name in ("model", "model_id", "model_name", "turn", "round", "iteration", "step"):
            if row.get(name) not in (None, ""):
                self._kinds.setdefault(name, {})[str(row[name])] = None
        gold, value = self._gold(names["gold"], where), names["gold"][1] if names["gold"] else None
        if gold is None and str(value or "").strip():
            self._no_golds.add(question_id)
        choices: dict[str, str] = {}
        if self.extract is answer_text and gold is not None:
            gold, choices = choices_of(row, gold, value, (names["samples"] or [""])[0])
        several, samples = self._samples(names["samples"], where)
        labels = self._labels(names["reward"], len(samples) if several else None, where)
        known = self.questions.get(question_id)
        if known is None:
            known = self.questions[question_id] = Question(question_id, gold, [], [], read)
            self._seen_at[question_id], self._prompts[question_id] = where, prompt
            self._choices[question_id] = choices
        else:
            self._check_same(known, gold, prompt, where)
            self._left_out["rows with the id of an earlier row, which count as samples of its question"] += several
        is_prediction = EXTRACTED.fullmatch((names["samples"] or [""])[0])
        for index, sample in enumerate(samples):
            place = f"{where}: sample {index}" if several else where
            if sample is None and not is_prediction:
                self.note("null samples, which are skipped")
                continue
            answer = None if sample is None else self._answer(sample, question_id, len(known.answers), place)
            known.answers.append(answer and named_choice(answer, choices))
            known.labels.append(labels[index] if labels is not None else self._label_of(sample, row, place))
        name, value = names["reward"] or ("", None)
        if len(samples) > 1 and not isinstance(value, list | None) and {*known.labels[-len(samples) :]} == {None}:
            self._graded.add(name)  # one verdict for several samples
        if is_prediction and names["gold"] and names["gold"][0] == "solution":
            self.note("gold answers in 'solution', which may be responses (--gold FIELD)")
        if not known.answers:  # all of its samples so far are null
            del self.questions[question_id]

    def note(self, what: str) -> None:
        self._left_out[what] += 1

    def remarks(self) -> list[str]:
        """Read bare answers; return sentences on how the file was read, for the first line of a report and below it."""
        found: list[str] = []
        if self._are_bare():
            found.append("samples that are bare answers are read as such; --from-text reads them as responses")
            for (question_id, index), text in self._short.items():
                self.questions[question_id].answers[index] = named_choice(text, self._choices[question_id])
        unfit = sum(map(self._is_unfit, self.questions.values()))
        if 2 * unfit > len(self.questions):
            rest = f"so none decides (--gold): {unfit} of {len(self.questions)}"
            found.append(f"most gold answers are lists, objects, several lines, long prose or verdicts, {rest}")
            self.questions = {id_: replace(one, gold=None) for id_, one in self.questions.items()}
        elif self._no_golds:
            found.append(
                f"gold answers that are lists, objects or several lines (--gold) are left out: {len(self._no_golds)}"
            )
        if self._graded:
            names = ", ".join(sorted(self._graded))
            fix = "(--gold, --reward, --threshold)"
            found.append(f"values of {names} are not a verdict a sample: they decide nothing {fix}")
            for one in self.questions.values():
                one.labels[:] = [None] * len(one.labels)
        several = any(len(one.answers) > 1 for one in self.questions.values())
        for name, kinds in self._kinds.items():
            if len(kinds) > 1 and (several or name.startswith("model")):
                found.append(f"samples of several {name}s, which count as those of one: {short(', '.join(kinds))}")
        golds = [one for one in self.questions.values() if one.gold and not is_letter(one.gold[:3])]
        bare = sum(map(is_letter, chain.from_iterable(one.answers for one in golds)))
        if 20 * bare > sum(len(one.answers) for one in golds):
            found.append(f"answers that are letters, where the gold answer is none: {bare}")
        found += [f"{what}: {number}" for what, number in self._left_out.items() if number]
        labels = [label for one in self.questions.values() for label in one.labels]
        if 0 < labels.count(None) < len(labels):
            found.append(f"samples without a label: {labels.count(None)}")
        no_gold = all(one.gold is None for one in self.questions.values())
        self._empty = {"reward": labels.count(None) == len(labels), "gold": no_gold}
        used = [role_and_field for role_and_field, _ in self._used.most_common()]
        idle = [one for one in used if self._empty.get(one.partition(":")[0])]
        if idle:
            found.append(f"fields without a usable value: {', '.join(idle)}")
        read = f"read as {self._tool or 'rows of samples'} ({', '.join(one for one in used if one not in idle)})"
        return [read, *found, *self._doubtful_ids(several=several)]

    def _is_unfit(self, one: Question) -> bool:
        """Whether a gold answer is left out, long prose without an answer, or true or false where no answer is."""
        gold = one.gold or ""
        if gold.lower() in _TRUTHS and self.extract is answer_text:
            return not any(str(answer).lower() in _TRUTHS for answer in one.answers)
        prose = canonical_text(gold) if len(gold) > SHORT and "\\" not in gold and self.extract(gold) is None else ""
        return prose.startswith((Tag.WORDS, Tag.UNREAD, Tag.UNIQUE)) or one.question_id in self._no_golds

    def unused(self) -> set[str]:
        """Return the options that were given and had no effect."""
        given = self.given
        idle = {
            "--gold": given.gold and self._empty["gold"],
            "--reward": given.reward and self._empty["reward"],
            "--id-part": given.id_part and not self._parts,
            "--threshold": given.threshold != THRESHOLD and (self._empty["reward"] or not self._compared),
        }
        return {option for option, is_idle in idle.items() if is_idle}

    def _doubtful_ids(self, *, several: bool) -> Iterator[str]:
        """Yield a remark where every sample has an id of its own, though questions seem to have several."""
        if self.rows > 1 and len(self.questions) == 1:
            yield f"all {self.rows} rows are of one question; --id FIELD, or --id {ROW}, if they are not"
        if self.rows < 2 or several or self.given.id_part or self.given.id == ROW:
            return
        prompts = [repr(prompt) for prompt in self._prompts.values() if prompt is not None]
        stems = {re.sub(r"[-_./: ]?\d+$", "", question_id) for question_id in self.questions}
        if prompts and 2 * len(set(prompts)) <= len(prompts):
            yield "every sample has an id of its own, though prompts repeat: --prompt FIELD takes prompts for ids"
        elif 1 < len(stems) < len(self.questions):
            yield (
                f"every sample has an id of its own; if ids such as {next(iter(self.questions))[:SHORT]!r} number the "
                r"samples of a question, --id-part '(.*)[-_]\d+$' takes the part before the number for the id"
            )

    def _are_bare(self) -> bool:
        """Whether most samples have no answer as responses, or nearly all are short, and half of those or more without
        one are answers as they are.
        """
        samples = sum(len(one.answers) for one in self.questions.values())
        missing = sum(answer is None for one in self.questions.values() for answer in one.answers)
        if self.from_text or not missing or (2 * missing <= samples < 20 * self._long):
            return False
        words, golds = (Tag.WORDS, Tag.UNREAD), {canonical_text(one.gold or "") for one in self.questions.values()}
        read = map(canonical_text, self._short.values())
        return 2 * sum(text in golds or not text.startswith(words) for text in read) >= missing

    def _find(self, role: str, row: Mapping[str, Any], tool: str, where: str) -> tuple[str, Any] | None:
        """Return the name of a role's field in a row, and its value; None where it has none."""
        given = str(getattr(self.given, role))
        others = {str(getattr(self.given, name)) for name in NAMES if name != role}
        names = TOOLS[tool][1].get(role, NAMES[role]) if tool else NAMES[role]
        if role == "reward" and isinstance(row.get("metrics"), list):  # lm-evaluation-harness names its own
            names = (*names, *map(str, row["metrics"]))
        for name in (given,) if given else names:
            value = name(row) if callable(name) else find(row, name, _MISSING)
            if value is _MISSING or (role == "prompt" and value in ("", None)) or (not given and name in others):
                continue
            if role != "samples" or given or (is_sample(value) and not (name == "choices" and are_options(value))):
                return role if callable(name) else str(name), value
        return (ROW, None) if given == ROW else None

    def _find_by_words(self, names: dict[str, tuple[str, Any] | None], row: Mapping[str, Any]) -> None:
        """Add the roles that have no usual name: a field whose name has their words, if the first row has one."""
        if self.rows == 1:
            self._words = {role: self._worded(role, row) for role in NAMES}
        for role, fields in self._words.items():
            if len(fields) > 1 and role == "samples":
                fields = [name for name in fields if not EXTRACTED.fullmatch(name)]
            elif len(fields) > 1 and role == "gold":
                fields = [name for name in fields if EXTRACTED.fullmatch(name)]
            elif role == "reward" and names["samples"]:
                same = [one for one in fields if _size(row.get(one)) == _size(names["samples"][1])]
                fields = same or [one for one in fields if not isinstance(row.get(one), list)]
            if names[role] is None and len(fields) == 1 and fields[0] in row and (role != "id" or not names["prompt"]):
                names[role] = fields[0], row[fields[0]]
        if names["gold"] and names["reward"] and names["gold"][0] == names["reward"][0]:
            self.note(f"values of {names['gold'][0]!r}, golds or verdicts, which decide nothing (--gold, --reward)")
            names["gold"] = names["reward"] = None
        if names["id"] is names["prompt"] is None and not self.given.prompt:
            talks = [(name, before_answer(value)) for name, value in row.items() if is_conversation(value)]
            names["prompt"] = talks[0] if talks else None
        if names["samples"] or self.given.samples:
            return
        if self.rows == 1:
            self._either = self._answer_in(row, names)
        if self._either:
            names["samples"] = self._either, row.get(self._either)
            if names["gold"] and names["gold"][0] == self._either:
                golds = [(one, row[one]) for one in self._words["gold"] if one in row]
                names["gold"] = golds[0] if golds else None
        elif names["gold"] is None and names["reward"] and not self._words["samples"]:
            names["samples"] = "", ""  # labels alone

    def _answer_in(self, row: Mapping[str, Any], names: Mapping[str, tuple[str, Any] | None]) -> str:
        """Return the answer that is the sample: the gold or a verdict is elsewhere, and no other text is as long."""
        gold = names["gold"] and names["gold"][0]
        is_known = gold not in EITHER or self.given.gold or self._words["gold"] or names["reward"]
        if self._words["samples"] or not is_known:  # other fields may be meant, or a data set is read
            return ""
        name = next((one for one in EITHER if one in row and (one != "text" or not gold)), "")
        rest = (str(value) for other, value in row.items() if other != name and not WORDED["prompt"].fullmatch(other))
        return name if name and max(map(len, rest), default=0) <= len(str(row[name])) else ""

    def _worded(self, role: str, row: Mapping[str, Any]) -> list[str]:
        """Return the fields of a row whose names have the words of a role, and whose values can be of it."""
        if getattr(self.given, role) or (role == "gold" and not self.given.has_golds):
            return []
        return [
            name
            for words, name in {snake(name): name for name in row}.items()
            if name not in self.given
            and (WORDED[role].fullmatch(words) or (role == "samples" and is_conversation(row[name])))
            and FITS[role](row[name])
        ]

    def _check_complete(self, names: Mapping[str, Any], read: Mapping[str, Any], where: str) -> None:
        """Raise one error for all fields that a row lacks."""
        lacking = {}
        for role in NAMES:
            given = str(getattr(self.given, role))
            if names[role] is not None or (role == "gold" and not self.given.has_golds):
                continue
            if given and role != "reward":  # a reward may stand in the samples
                lacking[role] = repr(given)
            elif role == "samples" or (role == "id" and (names["prompt"] or ("", None))[1] is None):
                lacking[role] = " or ".join([repr(name) for name in NAMES[role] if "." not in name][:3])
        if lacking:
            options = [f"--{role} {' or '.join(self._words.get(role, [])[:3]) or 'FIELD'}" for role in lacking]
            raise ValueError(
                f"{where}: lacks {'; '.join(f'{names} (the {role})' for role, names in lacking.items())}; it has "
                f"{some_names(read)}. Name the fields: {' '.join(options)}."
                + " To sample a model on problems: outcome-rl eval." * ("samples" in lacking)
                + f" In place of --id, --prompt takes prompts for ids, and --id {ROW} the rows." * ("id" in lacking)
            )

    def _id(self, found: tuple[str, Any] | None, prompt: Any, row: Mapping[str, Any], where: str) -> str:
        """Return the id of a row, by default the hash of its prompt as the trainers take it."""
        if self.given.id == ROW:
            return str(self.rows)
        if found is None or (found[1] is None and prompt is not None):
            return question_id_of(prompt)
        text = id_of_row(row, (found[0],), where, "Give every question its own id, or its prompt")[0]
        part = re.match(self.given.id_part, text) if self.given.id_part else None
        named = next(iter(part.groups()), None) if part else None
        self._parts += named is not None
        return text if named is None else named

    def _gold(self, found: tuple[str, Any] | None, where: str) -> str | None:
        name, value = found or ("", None)
        if isinstance(value, list) and len(one := {str(gold): gold for gold in value if gold is not None}) == 1:
            (value,) = one.values()
        if isinstance(value, str) and not value.strip():
            return None
        no_answer = isinstance(value, str) and "\\" not in value and self.extract(value) is None
        lines = str(value).split("\n") if no_answer else ()
        if isinstance(value, list | Mapping) or len({*filter(None, map(str.strip, lines))}) > 1:
            return None
        return None if value is None else str(value) if isinstance(value, bool) else as_text(value, name, "gold", where)

    def _samples(self, found: tuple[str, Any] | None, where: str) -> tuple[bool, Sequence[Any]]:
        """Return whether a row has a list of samples, and the samples."""
        name, value = found or ("", None)
        if isinstance(value, Mapping) and not is_text(value) and is_sample(value):
            value = list(value.values())
        if not isinstance(value, list) or is_one(value):
            return False, [value]
        if not value:
            raise ValueError(f"{where}: field {name!r} must be a list of at least one sample; got []")
        if all(isinstance(one, list) and not is_one(one) for one in value):  # samples of each request or attempt
            value = [sample for one in value for sample in one]
            if all(isinstance(one, list) and not is_one(one) for one in value):  # log-likelihoods of choices
                return False, [""]
        return True, value

    def _labels(self, found: tuple[str, Any] | None, count: int | None, where: str) -> list[bool | None] | None:
        """Return the labels that stand in the row; None where they may stand in the samples."""
        name, value = found or ("", None)
        if found is None or (value is None and count is not None):
            return [None] * (count or 1) if found and self.given.reward else None
        if count is None:
            return [self._label(value, name, where)]
        if isinstance(value, list) and len(value) == count:
            return [self._label(one, name, f"{where}: {name}[{index}]") for index, one in enumerate(value)]
        if isinstance(value, list) or (self.given.reward and count > 1):
            raise ValueError(
                f"{where}: field {name!r} must be a list of {count} labels, one per sample; got {short(value)}. "
                "Leave it out, or put it into the samples"
            )
        return [self._label(value, name, where)] if count == 1 else None  # one number for several samples

    def _label_of(self, sample: Any, row: Mapping[str, Any], where: str) -> bool | None:
        """Return the label in a sample; a field that was named must be in every sample or row, but may be null."""
        found = self._find("reward", sample, "", where) if isinstance(sample, Mapping) else None
        if found is None and isinstance(sample, Mapping) and len(names := self._worded("reward", sample)) == 1:
            found = names[0], sample[names[0]]
        if found is not None:
            self._used[f"reward: {found[0]}"] += 1
            return self._label(found[1], found[0], where)
        if self.given.reward:
            has = some_names({**row, **sample} if isinstance(sample, Mapping) else row)
            raise ValueError(
                f"{where}: lacks {self.given.reward!r} (the reward); it has {has}. Name the field: --reward FIELD"
            )
        return None

    def _label(self, value: Any, name: str, where: str) -> bool | None:
        if isinstance(value, list) and value and all(isinstance(one, int | float) for one in value):
            if len(value) > 1 and not self.given.reward:  # of tokens, or of several functions
                self.note(f"lists of numbers in {name!r}, which are no labels (--reward adds them up)")
                return None
            value = sum(value) if len(value) > 1 else value[0]
        if isinstance(value, str):  # a cell of a CSV file, or a word
            value = number_of(value)
        if value is None or isinstance(value, bool):
            return value
        if not isinstance(value, int | float) or value != value:
            if not self.given.reward:
                self._graded.add(name)  # "C" and "I" among other letters are no verdicts either
                return None
            raise ValueError(
                f"{where}: field {name!r} must be a number, true, false or null; got {short(value)}. Correct it, or "
                "name another field: --reward FIELD"
            )
        worded = name not in NAMES["reward"] and WORDED["reward"].fullmatch(name)
        if value > 1 and self.given.reward and self.given.threshold <= 1:
            self.note(f"values of {name!r} above 1, which count as correct (--threshold)")
        elif not self.given.reward and (value > 1 or (worded and value not in (0, 1))):
            self._graded.add(name)
        self._compared += 1
        return bool(value > self.given.threshold)

    def _answer(self, sample: Any, question_id: str, index: int, where: str) -> str | None:
        if isinstance(sample, Mapping) and "answer" in sample and not self.from_text:
            value = sample["answer"]
            return None if value is None else as_text(value, "answer", "answer of a sample", where)
        text = text_of(sample, where)
        answer = self.extract(text)
        self._long += len(text) > SHORT
        if answer is None and not self.from_text and text.strip() and len(text) <= SHORT:
            self._short[question_id, index] = text.strip()
        return answer

    def _check_same(self, known: Question, gold: str | None, prompt: Any, where: str) -> None:
        """Check that two rows with one id are of one question."""
        id_, first = known.question_id, self._seen_at[known.question_id]
        pairs = {"gold answer": (known.gold, gold), "prompt": (self._prompts[id_], prompt)}
        for what, (before, now) in pairs.items():
            if before != now and (what == "gold answer" or None not in (before, now)):
                raise ValueError(
                    f"{where}: the {what} of id {id_[:SHORT]!r} must be {short(before)}, as in {first}; got "
                    f"{short(now)}. Give different questions different ids: --id FIELD, --prompt FIELD, or --id {ROW}"
                )


_MISSING = object()
_TRUTHS = ("true", "false")


def _size(value: Any) -> int:
    return len(value) if isinstance(value, list) else 1
