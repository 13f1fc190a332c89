"""Names of the fields of saved samples: the usual ones, tools', and words that labels are written in."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

NAMES: dict[str, tuple[str, ...]] = {
    "id": (
        *("custom_id", "id", "question_id", "unique_id", "extra_info.index", "doc_id", "task_id", "example_id"),
        *("problem_id", "problem_idx", "qid", "pid"),
    ),
    "prompt": (
        *("problem", "question", "query", "prompt", "input", "instruction", "full_prompt", "doc.query", "doc.question"),
        *("inputs", "request.contents"),
    ),
    "gold": (
        *("gold", "gold_answer", "reward_model.ground_truth", "ground_truth", "gts", "gt", "expected_answer", "target"),
        *("answer", "env_extras.reward_spec.ground_truth", "vars.answer", "solution"),
    ),
    "samples": (
        *("response.body.choices", "response.body.output", "result.message.content"),  # of batches
        *("response.candidates", "response.choices"),
        *("samples", "completions", "responses", "generations", "outputs", "code", "predictions", "resps", "response"),
        *("completion", "generation", "output", "prediction", "model_output", "model_response", "messages"),
        "choices",  # or the options of a question
    ),
    "reward": (
        *("correct", "is_correct", "symbolic_correct", "correctness_math_verify", "passed"),
        *("graded_list", "plus_status", "base_status", "correctness", "exact_match", "acc", "score", "reward"),
    ),
}
"""Role -> usual names of its field; a dot leads into a struct or a list. A list of samples comes before one sample."""


EXTRACTED = re.compile(r"(\w+_)?(pred|predict|predicted|predicted_\w+|answer)s?")
"""Names of answers that were extracted from responses: null is none, and a text beside them comes first."""

EITHER = ("answer", "solution", "text")
"""Names of a sample where the row has no other one, and something else says what is correct."""

_NOUN = r"(answer|solution|output|response|completion|generation|prediction|result|label|text|code|value|key)s?"
_TRUE = r"(gold|golden|gt|ground_truth|truth|ref|reference|target|expected|correct|true|right|official|real|standard)"
WORDED = {
    role: re.compile(pattern)
    for role, pattern in {
        "id": r"((question|problem|task|example|instance|item|query|prompt)_?)?(id|idx|index|uid|uuid|number|key|name)",
        "prompt": r"(?!system)(\w+_)?(question|problem|prompt|query|instruction|input)s?(_(text|content))?",
        "gold": rf"{_TRUE}(_final)?_{_NOUN}|answer_?key|(gold|golden|gt|truth|ref|reference|target|expected|label)s?",
        "samples": rf"(?!{_TRUE}_|(input|num|n|max|grader|critic|feedback|(\w+_)?(judg\w+|verif\w+|per))_)"
        r"((\w+_)?(response|completion|generat(ion|ed)|predict(ion|ed)|output|pred|predict|sample)s?|"
        rf"(\w*(model|llm|gpt)\w*|generated|predicted|raw|final|assistant)_{_NOUN})(_(text|content|list|raw))?",
        "reward": r"((is|was)_)?(\w+_)?(correct|solved|passed|success|successful|resolved|right)|pass|label|status",
    }.items()
}
"""Role -> words by which the one field that has them is taken, where no usual name is there."""


@cache
def snake(name: str) -> str:
    """Return a field's name in lower case, with `_` between its words."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s-]+", "_", name).lower()


def is_usual(name: str) -> bool:
    """Return whether a name is that of a role, or of a text."""
    known = any(name in names for names in NAMES.values()) or name in TEXTS
    return known or any(words.fullmatch(snake(name)) for words in WORDED.values())


TEXTS = (
    *("text", "response", "completion", "content", "message", "generation", "output", "prediction", "solution", "code"),
    *("full_model_response", "turns", "parts", "value"),
)
"""Names of the text in an object of a sample."""


def _tagged(row: Mapping[str, Any]) -> Any:
    """Return HELM's gold answers: the references that are tagged as correct."""
    return [one["output"]["text"] for one in row["instance"]["references"] if "correct" in one.get("tags", ())]


def _chosen(row: Mapping[str, Any]) -> Any:
    """Return lighteval's gold answers: the choices that `gold_index` names."""
    choices, index = row["doc"]["choices"], row["doc"]["gold_index"]
    return [choices[i] for i in (index if isinstance(index, list) else [index]) if i < len(choices)]


Name = str | Callable[[Mapping[str, Any]], Any]
TOOLS: dict[str, tuple[tuple[str, ...], dict[str, tuple[Name, ...]]]] = {
    "lm-evaluation-harness": (("resps", "target"), {"id": ("doc_id",), "gold": ("target",), "samples": ("resps",)}),
    "lighteval": (
        ("doc.choices", "doc.gold_index", "model_response"),
        {"id": ("doc.id",), "gold": (_chosen,), "samples": ("model_response.text",), "reward": ("metric.*",)},
    ),
    "HELM": (
        ("instance.references", "request", "result"),
        {
            "id": ("instance.id",),
            "prompt": ("instance.input.text",),
            "gold": (_tagged,),
            "samples": ("result.completions",),
        },
    ),
    "Inspect": (
        ("epoch", "target", "output"),
        {"samples": ("output.choices", "output.completion"), "reward": ("scores.*.value",)},
    ),
    "promptfoo": (
        ("promptIdx", "vars"),
        {"id": (), "prompt": ("prompt.raw",), "samples": ("response.output",), "reward": ("success",)},
    ),
}
"""Tool whose rows have names of their own -> the fields by which they are told from others, and its names of roles.

The first that fits is taken.
"""

THRESHOLD = 0.5  # a reward above it is correct: a reward of .1 for the format alone is not
ROW = "@row"  # as the field of the id: the number of the row
# Words that labels are written in; "C" and "I" are Inspect's.
WORDS = dict.fromkeys(("true", "yes", "correct", "pass", "passed", "c", "right", "ok"), True)
WORDS |= dict.fromkeys(("false", "no", "incorrect", "fail", "failed", "i", "wrong"), False)
SHORT = 80  # characters of a value in an error, and of a bare answer
