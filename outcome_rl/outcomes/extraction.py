"""Extraction of the final answer of a response: the last complete `\\boxed{...}`, else one of a few fixed forms.

Every rule is a single pass over the end of the text, so hostile responses (a megabyte of `\\boxed{`) cost bounded time,
and no string raises. `docs/outcomes.md` gives the order of the rules, and the reason against a "last number in the
text" rule.
"""

import heapq
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Literal, NamedTuple

MAX_CHARS = 1 << 16
"""Number of characters searched at the end of a response: more than 20,000 tokens."""

AnswerSource = Literal["boxed", "tag", "hash", "phrase", "conclusion", "line", "given", "function"]


class Answer(NamedTuple):
    """Final answer with its character span: `text == response[start:end]`, without surrounding spaces.

    `source` names the rule that found it; "given" marks an answer that was passed without its response, and "function"
    the outcome of an outcome function: then `text` is the outcome, and the span is empty if the function gave none.
    """

    text: str
    start: int
    end: int
    source: AnswerSource


def extract_answer(response: str) -> Answer | None:
    """Return the final answer of a response, or None if it has none.

    Args:
        response: any string; the completion as decoded, without the prompt.

    Returns:
        The answer of the first rule that applies to what follows the end of the model's reasoning (`</think>`), which
        may be only the answer, such as `10`, or, if none applies there, to all of the last `MAX_CHARS` characters: the
        last complete non-empty `\\boxed{...}` / `\\fbox{...}`, or the last few of them if a comma or an `and` joins
        them; `<answer>...</answer>`; `#### 42`; what follows a heading "Final Answer"; "the answer is ..." / "Answer:
        ..."; a last sentence "Therefore ... is 42."; a last line `A: 42`. Special tokens that a plain `batch_decode`
        leaves, such as `<|im_end|>`, end an answer.
        Where no box is complete and non-empty, the other rules read the sentences before the one in which a box was
        cut off.

    Raises:
        TypeError: if `response` is not a string.
    """
    if not isinstance(response, str):
        raise TypeError(f"response must be a str; got {type(response).__name__}. Decode token ids first.")
    skipped = max(0, len(response) - MAX_CHARS)
    text = response[skipped : _end_of_text(response)]
    thought = _end_of_reasoning(text)
    answer = (_final(text[thought:], thought) if thought else None) or _answer_in(text, 0)
    return answer and _moved(answer, skipped)


def final_answer(gold: str) -> str:
    """Return the answer in a solution that ends in one, such as GSM8K's `... #### 42`; else the text itself."""
    answer = extract_answer(gold)
    return gold if answer is None else answer.text


def after_reasoning(response: str) -> str:
    """Return what follows the end of the model's reasoning, or the whole response if that has no answer."""
    final = response[_end_of_reasoning(response) :]
    return final if len(final) < len(response) and _final(final[: _end_of_text(final)], 0) is not None else response


def _final(text: str, offset: int) -> Answer | None:
    """Return the answer of what follows the reasoning, which begins at `offset`; it may be the answer only."""
    return _answer_in(text, offset) or _bare(text, offset)


_MAX_BARE_LINE = 100
_WORD = re.compile(r"(?<![A-Za-z\\])(?<![0-9])(?<![0-9] )(?!(?:and|or)\b)[^\W\d_]{2,}")  # but for a unit
_FEW_WORDS = re.compile(r"[^\W\d_]+(?:[ -][^\W\d_]+)?")
_MATHEMATICS = re.compile(r"[0-9\\=]|\W*[A-Z]\W*$")
_AROUND = re.compile(r"[\s$*_`.,;:!。，；：()\[\]\\]*")


def _bare(text: str, offset: int) -> Answer | None:
    """Read `10`, `$x = 2$`, `5 cm` or `(C)` that is all of a text without a box; a sentence is no answer."""
    start, end = _strip(text, 0, len(text))
    answer = _answer(text, start, end, "line") if 0 < end - start <= _MAX_BARE_LINE else None
    if answer is None or "\n" in answer.text or _BOX.search(text):
        return None
    if _FEW_WORDS.fullmatch(answer.text):  # `Yes.`, `No solution`, `Evelyn`
        return _moved(answer, offset)
    if _WORD.search(answer.text):
        return None
    around = text[start : answer.start] + text[answer.end : end]
    if _MATHEMATICS.search(answer.text) is None or _AROUND.fullmatch(around) is None:
        return None
    return _moved(answer, offset)


def _answer_in(text: str, offset: int) -> Answer | None:
    """Return the answer of a text that begins at `offset` of another one."""
    first_box = _BOX.search(text)
    if first_box and (answer := _last_box(text, first_box.start())):
        return _moved(answer, offset)
    read = _without_boxes(text) if first_box else text
    answer = next(filter(None, (rule(read) for rule in _FALLBACKS)), None)
    return answer and _moved(answer._replace(text=text[answer.start : answer.end]), offset)


def _without_boxes(text: str) -> str:
    """Blank the boxes without content, and drop the sentence in which a box was cut off and what follows it."""
    text = _EMPTY_BOX.sub(lambda box: " " * len(box[0]), text)
    if cut_off := _BOX.search(text):
        stop = _last_match(_SENTENCE_END, text[: cut_off.start()])
        text = text[: stop.end()].rstrip() if stop else ""
        while text.endswith(("\\[", "\\(", "\n$$", "\n$")):  # of the formula that was to hold the box
            text = text[:-2].rstrip()
    return text.rstrip()


def _moved(answer: Answer, offset: int) -> Answer:
    """Return an answer whose text began at `offset` of another one."""
    return answer._replace(start=answer.start + offset, end=answer.end + offset) if offset else answer


# `</think>` of DeepSeek and Qwen, `[/THINK]` of Mistral, `<|end_of_thought|>`, the final channel of gpt-oss.
_REASONING_END = re.compile(
    r"</(?:[a-z]+:)?(?:think|thinking|thought|reasoning|reflection|analysis)>|\[/THINK\]|<\|end_of_thought\|>"
    r"|<\|channel\|>final<\|message\|>|◁/think▷|assistantfinal(?![a-z])",
    re.IGNORECASE,
)


def _end_of_reasoning(text: str) -> int:
    """Return where the text after the model's reasoning begins; 0 if it does not say."""
    # Most texts end here: one character is found much faster than two, and two than the pattern.
    slash = "/" in text and ("</" in text or "[/" in text)
    if not (slash or ("|" in text and "<|" in text) or "◁" in text or "assistantfinal" in text):
        return 0
    end = _last_match(_REASONING_END, text)
    return 0 if end is None else end.end()


_SPECIAL_TOKEN = re.compile(r"<[|｜][^<>\n]{1,40}[|｜]>|</?s>|<(?:eos|bos|pad|unk|(?:end|start)_of_turn)>")


def _end_of_text(response: str) -> int:
    """Return where the special tokens and spaces at the end begin."""
    end = len(response.rstrip())
    while response.endswith(">", 0, end):
        start = response.rfind("<", max(0, end - 48), end)
        if start < 0 or _SPECIAL_TOKEN.fullmatch(response, start, end) is None:
            break
        end = start
        while end and response[end - 1].isspace():
            end -= 1
    return end


_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
# `\boxed{}`, or `\boxed` in a sentence about it.
_EMPTY_BOX = re.compile(r"\\(?:boxed|fbox)(?:\s*\{\s*\}|(?![A-Za-z]|\s*\{))")
# Alternatives are tried in order: a box, an escaped character (so that `\{` is no brace), a brace.
_BOX_TOKEN = re.compile(r"(\\(?:boxed|fbox)(?![A-Za-z])\s*)(\{?)|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"(?:[^\s$\\]+|\\(?![)\]]|boxed|fbox))+")
_DIGIT = re.compile("[0-9]")
_MAX_BARE = 100
# Text allowed between boxes that form one answer: `\boxed{2}$ and $\boxed{3}`. An "or" may introduce a restatement.
_SPACING = r"(?:[\s${}]|\\[,;:! ()\[\]]|\\q?quad|\\text)*"
_JOINT = re.compile(rf"(?:{_SPACING}(?:[,;]|and))+{_SPACING}")
_MAX_JOINT = 40


def _last_box(response: str, first: int) -> Answer | None:
    """Return the box that closes last, or the box inside it if it holds nothing else; the first box is at `first`."""
    open_groups: list[tuple[int, int] | None] = []  # (start of the command, start of the content) of a box; else None
    open_boxes = 0
    found: tuple[int, int] | None = None
    extent = (-1, -1)  # span of the command that holds `found`, braces included
    outermost: list[tuple[int, int]] = []  # spans of the boxes that are inside no other box
    for token in _BOX_TOKEN.finditer(response, first):
        if token[1] is not None:
            if token[2]:
                open_groups.append((token.start(), token.end()))
                open_boxes += 1
            elif bare := _bare_box(response, token.end()):
                found, extent = bare, (token.start(), bare[1])
        elif token[0] == "{":
            open_groups.append(None)
        elif token[0] == "}" and open_groups and (box := open_groups.pop()) is not None:
            open_boxes -= 1
            content = _strip(response, box[1], token.start())
            if content != extent and content[0] < content[1]:
                found = content
            extent = (box[0], token.end())
            if open_boxes == 0 and content[0] < content[1]:
                outermost.append(extent)
    if found is None:
        return None
    start, end = _joined(response, outermost, found)
    return Answer(response[start:end], start, end, "boxed")


def _joined(response: str, boxes: list[tuple[int, int]], last: tuple[int, int]) -> tuple[int, int]:
    """Return the span of the list of different boxes that ends with `last`, or `last` if it is not part of a list."""
    if not boxes or not boxes[-1][0] <= last[0] < boxes[-1][1]:
        return last
    count = 1
    while count < len(boxes):
        between = (boxes[-count - 1][1], boxes[-count][0])
        if between[1] - between[0] > _MAX_JOINT or not _JOINT.fullmatch(response, *between):
            break
        count += 1
    different = {response[start:end] for start, end in boxes[-count:]}
    return last if len(different) == 1 else (boxes[-count][0], boxes[-1][1])


def _bare_box(response: str, start: int) -> tuple[int, int] | None:
    """Read `\\boxed 5` or `\\boxed\\frac12`: up to a space, a `$` or the end of the formula, if there is a digit."""
    run = _BARE_BOX.match(response, start, start + _MAX_BARE)
    if run is None:
        return None
    text = run[0].rstrip(".,;:")
    if text.count("{") != text.count("}") or _DIGIT.search(text) is None:
        return None
    return start, start + len(text)


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    """Narrow [start, end) past the spaces at its edges."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def _answer(response: str, start: int, end: int, source: AnswerSource) -> Answer | None:
    """Return the span as an answer, without math delimiters, Markdown emphasis and closing punctuation."""
    while start < end and (response[start] in _EMPHASIS or response[start].isspace()):
        start += 1
    start, end = _formula(response, start, end) or (start, end)
    if special := _SPECIAL_TOKEN.search(response, start, end):
        end = special.start()
    while start < end and (response[end - 1] in _CLOSING or response[end - 1].isspace()):
        end -= 1
    start, end = _strip(response, start, end)
    return Answer(response[start:end], start, end, source) if start < end else None


_EMPHASIS = "*_`"
_CLOSING = _EMPHASIS + ".,;:!。，；："


def _formula(response: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the inside of the formula that begins at `start`; a `$` not closed on its line is a currency sign."""
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if response.startswith(opening, start, end):
            start += len(opening)
            close = response.find(closing, start, end)
            return None if close < 0 or (opening == "$" and "\n" in response[start:close]) else (start, close)
    return None


_TAG_END = re.compile(r"</((?:final_?)?answer)>|\[/((?:FINAL_?)?ANSWER)\]", re.IGNORECASE)


def _tag(response: str) -> Answer | None:
    """Find the last complete `<answer>...</answer>` or `[ANSWER]...[/ANSWER]`."""
    close = _last_match(_TAG_END, response) if "</" in response or "[/" in response else None
    if close is None:
        return None
    opening = f"<{close[1]}>" if close[1] else f"[{close[2]}]"
    start = response.rfind(opening, 0, close.start())
    return None if start < 0 else _answer(response, start + len(opening), close.start(), "tag")


# One token that holds a digit: `#### Step 1` is a Markdown heading, not a GSM8K answer.
_HASH = re.compile(r"^####[ \t]*(?=\S*[0-9])(\S+)[ \t]*$", re.MULTILINE)


def _hash(response: str) -> Answer | None:
    """Find the last line of the form `#### 42` (GSM8K)."""
    last = _last_match(_HASH, response) if "####" in response else None
    return None if last is None else _answer(response, *last.span(1), "hash")


_IS = (
    r"(?:\s+(?:to|for|of)\s[^.:=\n0-9\\$]{1,60}?)?"
    r"\s+(?:is|equals|becomes|comes out (?:to|at)(?: be)?|(?:should|would|must|will) be)\b"
    r"(?:,?\s+(?:also|clearly|exactly|given by|hence|indeed|just|now|simply|then|therefore|thus)\b,?)?\s*:?"
)
# `"final_answer": 7`, `the correct option is (B)`; `at pos` of a match sees what is before it.
_ANSWER = r"(?:(?<![A-Za-z])answer|(?<=correct )(?:option|choice))"
_PHRASE = re.compile(rf"{_ANSWER}(?:{_IS}|[\"'`]?\s*[:=])[\s*_]*", re.IGNORECASE)
_FOREIGN_PHRASE = re.compile(
    rf"(?:{_ANSWER}(?:{_IS}|[\"'`]?\s*[:=])|答案(?:[是为]\s*[:：]?|[:：])"
    r"|\b(?:respuesta|réponse|resposta|antwort|ответ)\s*(?:(?:es|est|é|ist|lautet)\b\s*:?|[:：]))[\s*_]*",
    re.IGNORECASE,
)
_FOREIGN_SIGNS = ("espuesta", "esposta", "ntwort", "éponse", "твет", "答案")
# A quotation, code, or the number of a JSON object.
_QUOTED = re.compile(r"(?:```[a-z]*\s+|[\"'`])([^\"'`\n]{1,100}?)\s*[\"'`]|(-?[0-9][0-9.]*)(?=\s*\})")
_SENTENCE_END = re.compile(r"\n|[.!?](?=\s|$)|[。！？]|<[|｜]")
_REASON = re.compile(r",?\s+(?:because|since|which|where|as)\s")


def _phrase(response: str) -> Answer | None:
    """Find the text after the last "answer is" or "answer:", up to the end of its formula, clause or line.

    A later one that says nothing new, `the answer is correct` or cut off, refers to the one before it.
    """
    for phrase in islice(_phrases(response), _MAX_PHRASES):
        answer = _said(response, phrase.end())
        if answer is not None and not _is_prose(answer.text):
            return answer
        if answer is not None and _DENIAL.search(answer.text):
            break
    return None


def _phrases(response: str) -> Iterator[re.Match[str]]:
    """Yield every "answer is", from the last one up."""
    if any(sign in response for sign in _FOREIGN_SIGNS):
        return reversed([*_FOREIGN_PHRASE.finditer(response)])
    # A search for a word is much faster than one that ignores case.
    found = (_phrases_of_word(response, word) for word in ("nswer", "NSWER", "ption", "hoice"))
    return heapq.merge(*found, key=lambda match: match.start(), reverse=True)


def _phrases_of_word(response: str, ending: str) -> Iterator[re.Match[str]]:
    at = response.rfind(ending)
    while at > 0:
        if match := _PHRASE.match(response, at - 1):
            yield match
        at = response.rfind(ending, 0, at)


def _said(response: str, start: int) -> Answer | None:
    """Return what is said from `start` on: a formula, a quotation, or words up to the end of the clause."""
    if formula := _formula(response, start, len(response)):
        return _answer(response, *formula, "phrase")
    if quoted := _QUOTED.match(response, start):
        return _answer(response, *quoted.span(quoted.lastindex or 0), "phrase")
    stop = _SENTENCE_END.search(response, start)
    end = len(response) if stop is None else stop.start()
    if reason := _REASON.search(response, start, end):  # `42 because ...`
        end = reason.start()
    return _answer(response, start, end, "phrase")


_HEADING = re.compile(r"^[ \t#*_]*(?:the[ \t]+)?(?:final[ \t]+)?answer[ \t*_:]*$", re.IGNORECASE | re.MULTILINE)


def _heading(response: str) -> Answer | None:
    """Read what follows a last heading "Final Answer", if it is the answer only."""
    last = _last_match(_HEADING, response) if "nswer" in response or "NSWER" in response else None
    answer = last and _bare(response[last.end() :], last.end())
    return answer and answer._replace(source="phrase")


_MAX_PHRASES = 4  # each costs a search for its end
_CHECKED = frozenset(("correct", "right", "verified", "confirmed", "valid", "reasonable"))
_DENIAL = re.compile(r"\b(?:not|wrong|incorrect|cannot|unknown|unclear)\b|n't\b", re.IGNORECASE)


def _is_prose(text: str) -> bool:
    """Return whether the phrase continues in words ("the answer is consistent with the problem statement")."""
    has_digit = _DIGIT.search(text) is not None
    return len(text) > 100 or text.casefold() in _CHECKED or (len(text.split()) > 3 and not has_digit)


_CONCLUSION = re.compile(
    r"[ \t*_]*(?:so|consequently|finally|overall|in conclusion|因此|所以|故|答案?[:：]|∴|\$?\\therefore"
    r"|(?:the )?(?:final )?(?:result|solution) ?(?:is|equals|=|:)|[^.!?\n]{0,100}\b(?:therefore|thus|hence)\b)",
    re.IGNORECASE,
)
_VERB = re.compile(r"\b(?:is|are|equals?|es|est|é|ist)\b|[=是为多少]|等于")
_QUANTITY = re.compile(
    r"\$\$?[^$\n]+\$\$?|\\\([^\n]*?\\\)|\\\[[^\n]*?\\\]|-?\\[dt]?frac\{[^{}\n]{1,20}\}\{[^{}\n]{1,20}\}"
    r"|(?<![A-Za-z0-9_.])[-−]?[$€£]?[0-9](?:[0-9,]*[0-9])?(?:\.[0-9]+)?(?:/[0-9]+)?"
)


def _conclusion(response: str) -> Answer | None:
    """Read a last sentence that draws a conclusion: the first quantity behind its last verb, or its only one.

    A line without a full stop was cut off, and has none.
    """
    end = len(response)
    start = response.rfind("\n") + 1
    sentences = [start, *(stop.end() for stop in _SENTENCE_END.finditer(response, start, end - 1))]
    start = next((at for at in reversed(sentences) if _CONCLUSION.match(response, at, end)), end)
    if start == end or end - start > _MAX_CONCLUSION or response[end - 1] not in _FULL_STOPS:
        return None
    quantities = [match.span() for match in _QUANTITY.finditer(response, start, end)]
    verbs = [verb.end() for verb in _VERB.finditer(response, start, end)]
    behind = [span for span in quantities if verbs and span[0] >= verbs[-1]]
    if not behind and len(quantities) != 1:
        return None
    return _answer(response, *(behind or quantities)[0], "conclusion")


_MAX_CONCLUSION = 300
_FULL_STOPS = ".!。！$)*"


_LINE = re.compile(r"[ \t*]*(?:A|(?:[Ff]inal )?[Rr]esult):[ \t*]*(\S[^\n]*)")


def _line(response: str) -> Answer | None:
    """Read a last line `A: 42`, the form of few-shot prompts that alternate `Q:` and `A:`, or `Result: 42`."""
    last = _LINE.match(response, response.rfind("\n") + 1)
    return None if last is None else _answer(response, *last.span(1), "line")


def _last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for last in pattern.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    return last


# Rules for a text without spaces at its end.
_FALLBACKS: tuple[Callable[[str], Answer | None], ...] = (_tag, _hash, _heading, _phrase, _conclusion, _line)
