"""Answers that a phrase or mark announces: "the answer is ...", a tag, `####`; or that are the whole text."""

import re
from collections.abc import Iterator
from itertools import islice

from outcome_rl.outcomes.extraction import announcements as words
from outcome_rl.outcomes.extraction.answer import DIGIT, answer_at, bare, last_match, sentence_ends, words_of
from outcome_rl.outcomes.extraction.statement import DENIED, changed_behind, said
from outcome_rl.outcomes.outcome import Outcome

_CHECKED = "correct|right|verified|confirmed|valid|reasonable|wrong|incorrect"
# `not 7`, `not correct`, `wrong`; words that an answer may be, `not possible`, stay one.
_TAKEN_BACK = re.compile(rf"(?i)not\s+(?:(?:equal to\s+)?(?:[-+(]?[0-9$\\]|(?-i:[A-J]\b))|(?:what|{_CHECKED})\b)")
# It says nothing new, or continues in words ("the answer is consistent with the problem statement"). More than three
# words without a digit are a list of words, if they stand in brackets, between commas, or hold no word of grammar.
# `not 5, it is 7`, `not 5 but 7`, `(cannot be) 5. So it must be 7`
_INSTEAD = re.compile(
    r"(?i)(?:\$[^$\n]{1,60}\$|\\\([^\n]{1,60}?\\\)|[^.!?\n,;]|[.,](?=[0-9])){1,40}?"
    r"(?:\s{0,3}[.,;—–-]\s{1,3}(?:(?:but|so|and|rather|instead|actually)\s)?(?:it|that)(?:'s|\s(?:is|(?:must|has to"
    r"|should|would|will) be))"
    r"|,?\s(?:but|it's)(?:\srather)?)\s(?=\S)"
)
_SUPPOSED = re.compile(rf"{words.SUPPOSED}|\b(?:[Ii]f|[Ww]hether)\b(?![^,\n]*+,)")
_CHECK = re.compile(rf"(?i){_CHECKED}")
_PROSE = re.compile(rf"(?is)(?:{_CHECKED}|not|null|none given|the (?:same|one above)\b.*|unchanged|.{{301,}})")
_ALL_OF = re.compile(r"(?i)(?:none|all|both|neither|some|any) of (?:the|these|them)(?: [a-z]{1,20})?\Z")
_GRAMMAR = re.compile(f"(?i){words_of('grammar')}")
_WORD = re.compile(r"(?<!\S)\S{0,9}[^\W\d_]{2}\S*+")


def _is_prose(answer: str) -> bool:
    """Whether an answer says nothing new, or is a sentence without a number."""
    if _PROSE.fullmatch(answer):
        return True
    if _ALL_OF.match(answer):
        return False
    if len(_WORD.findall(answer)) < 4 or re.search("[0-9]", answer):
        return len(answer) > 100
    most = 0 if "," in answer else len(answer) // 100  # that a long row of words may hold
    return not answer.isascii() or "\\" in answer or len(_GRAMMAR.findall(answer)) > most


def phrase(text: str) -> Outcome | None:
    """Find the value of the last announcement, up to the end of its formula, clause or line.

    A later one that says nothing new, `the answer is correct` or cut off, is ignored, and `the answer is not 7` cancels
    those before it.
    """
    checked = None
    for at, start, end in islice(_announced(text), 4):  # each costs a search for its end
        if end:  # `C is the answer`
            return answer_at(text, start, end, "phrase")
        sentence = max(at - 80, text.rfind("\n", 0, at), text.rfind(". ", 0, at), 0)
        if _SUPPOSED.search(text, sentence, at + len("answer")):
            continue
        if _TAKEN_BACK.match(text, start) or DENIED.search(text, max(0, start - 20), start):
            instead = _INSTEAD.match(text, start)
            return said(text, instead.end()) if instead else None
        if (answer := said(text, start)) and not _is_prose(answer.text):
            return answer
        is_first = text[:start].rstrip().endswith(":") or not DIGIT.search(text, 0, start)
        if answer and is_first and _CHECK.fullmatch(answer.text):
            checked = checked or answer  # `So the argument is valid.`
    return checked


def result(text: str) -> Outcome | None:
    """Read a last line that names a result, `A: 42`, `Total: 42`, or that is a conclusion of one value, `Thus 42`."""
    start = text.rfind("\n") + 1
    if chosen := words.CHOSEN.match(text, start):
        return answer_at(text, *chosen.span(chosen.lastindex or 0), "conclusion")
    named = words.RESULT.match(text, start)
    opened = named or words.CONCLUDED.match(text, start)
    answer = opened and said(text, opened.end())
    if answer is None or _is_prose(answer.text):
        return None
    if named:
        stop = next(sentence_ends(text, named.end(), len(text)), None)
        first = text[named.end() : stop.start()] if stop and text[stop.end() :].strip() else ""
        goes_on = DIGIT.search(first) and bare(first) is None
        return None if goes_on else answer._replace(source="line")  # `A: First we add. So it is 7.` concludes
    is_all = " + " not in answer.text and bare(answer.text) and words.REST.match(text, answer.end)
    return answer._replace(source="conclusion") if is_all else None


_MAX_ANNOUNCEMENTS = 256  # of a model that repeats one word


def _announced(text: str) -> Iterator[tuple[int, int, int]]:
    """Yield where an announcement and its value begin, and the end of a value that stands before it."""
    lowered = text.lower()  # as long: the view has no letter that becomes two
    said_words = [word for word in words.ANNOUNCEMENTS if word in lowered]
    places = [(place.start(), word) for word in said_words for place in re.finditer(word, lowered)]
    for at, word in sorted(places, reverse=True)[:_MAX_ANNOUNCEMENTS]:
        language = words.ANNOUNCEMENTS[word]
        if match := language.whole.match(text, at):
            yield at, match.end(), 0
            continue
        before = words.BEFORE.search(text, max(0, at - 99), at)
        if before and (before["choice"] or language.subject.match(text, at)):
            yield at, *before.span(before.lastindex or 0)


_TAG_END = re.compile(r"</(?:(?:final_?)?answer|final|solution)>|\[/(?:final_?)?answer\]", re.IGNORECASE)


def tag(text: str) -> Outcome | None:
    """Find the last complete `<answer>...</answer>` or `[ANSWER]...[/ANSWER]`."""
    close = last_match(_TAG_END, text) if "</" in text or "[/" in text else None
    start = text.rfind(close[0].replace("/", ""), 0, close.start()) if close else -1
    return answer_at(text, start + len(close[0]) - 1, close.start(), "tag") if close and start >= 0 else None


# GSM8K's mark, in a sentence or at the end of a line; `#### Step 1` is a Markdown heading. What follows begins with a
# number, names it, `x = 18`, or is a choice.
_NOUNS = r"((?:[ \t]{1,9}\(?[a-z]{1,30}\)?){0,8})"
_HASH = re.compile(
    r"(?:####|^#(?= [-−]?[0-9.,]{1,40}\Z))[ \t]*+"
    rf"(?:(?<=[^\s#] #### )([-−$€£]{{0,2}}[0-9][^\s#]{{0,60}}){_NOUNS}"
    r"|(?:[^=\n#A-Za-z]{1,60}=[ \t]{0,9})?"
    r"((?:[^\s#]{0,60}[0-9][^\s#]{0,60}|[^=\n#:]{1,60}=[ \t]{0,9}[-−]?[0-9][0-9.,/]{0,40})(?: [0-9]{1,9}/[0-9]{1,9})?"
    rf"|\(?[A-J]\)?){_NOUNS}[.!]?[ \t`]{{0,40}}(?:$|(?=####)))",
    re.MULTILINE,
)


def hash_mark(text: str) -> Outcome | None:
    """Find the last mark `#### 42` (GSM8K), or a last line `# 42`."""
    last = last_match(_HASH, text) if "# " in text or "####" in text else None
    if last is None:
        return None
    value = 1 if last[1] else 3
    is_changed = changed_behind(text, *last.span(value + 1))
    answer = said(text, last.start(value)) if is_changed else answer_at(text, *last.span(value), "hash")
    return answer and answer._replace(source="hash")


_OPTION = r"(?:[(\[][A-J][)\]]|[A-J][.:)])[ \t]++(?!(?:is|are|was|were|we|let)\b|[^\n]{0,300}\b[A-J][).:])[^\n]{1,300}"
_ALONE = re.compile(rf"\(?[A-J]\)?|\[[A-Za-z]{{1,20}}\]|\$[^$\n]++\$|\\\([^\n]{{1,300}}\\\)|{_OPTION}")
# A calculation of numbers or a group that was cut off, a chain of them, numbers side by side, or options.
_SEVERAL = re.compile(
    r"\A[-+*/×÷0-9.,\s]{1,100}\s[-+*/×÷][-+*/×÷0-9.,\s]{0,100}\Z|=[^=,;]{1,100}=|[0-9]\s[0-9]++(?!/)|[A-J][).:]"
    r"|\A[^{]{1,100}\}"
)
# `... is:`, and an option below; a letter in the last line.
_LAST_OPTION = re.compile(
    rf"(?::[ \t]*+\n\s*+{_OPTION}|\n\s*+(?:\([A-J]\)|\[[A-Za-z]{{1,20}}\]|[A-J](?=[.\s])))\s*+\.?\s*+\Z"
)


def alone(text: str) -> Outcome | None:
    """Read a quantity, a formula between its signs, `x = 2`, or a choice with or without its text, that is all.

    A choice in the last line, or an option below a colon, is read too.
    """
    whole = text.strip().removesuffix(".")
    if last := _LAST_OPTION.search(text, max(0, len(text) - 400)):
        start = last.start() + len(last[0]) - len(last[0].lstrip(": \n"))
    elif _ALONE.fullmatch(whole):
        start = text.index(whole)
    else:
        answer = bare(text)
        if answer is None or DIGIT.search(answer.text) is None or _SEVERAL.search(answer.text):
            return None
        start = len(text) - len(text.lstrip())
    answer = said(text, start)
    return answer and answer._replace(source="line")
