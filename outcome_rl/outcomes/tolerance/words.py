r"""Answers in words: sentences, letters of choices, names, the parts of an answer."""

import re
from functools import lru_cache

from outcome_rl.outcomes.canonical.number_words import number_in_words
from outcome_rl.outcomes.keys import Tag, canonical_text
from outcome_rl.outcomes.refutation import QUALIFIER

# Of the answer as it stands, not as plain LaTeX, which has no spaces between words.
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mbox) ?\{([^{}]*)\}")
_SPACES = re.compile(r"(?:\\[ ,;:!]|~|\s)+")
_YES = re.compile(r"(yes|no|true|false)[,.;:] ", re.IGNORECASE)
_SENTENCE = re.compile(
    r"(?:(?:there|it|this|the [a-z]+) (?:is|are)(?: an?| the)?|the [a-z]+(?= does not)|an?|the) ([A-Za-z ]+)",
    re.IGNORECASE,
)
_SUBJECT = re.compile(r"(?:the|this|that|it|an?)\b(?: [a-z]+){0,5}? ([a-z]+)", re.IGNORECASE)
_SAYS_MORE = re.compile(r"\b(?:not|no|never|neither|nor|or|either|if|unless|only|and|but|cannot)\b|n't", re.IGNORECASE)
_NONE = re.compile(
    r"(?:there (?:is|are|exists?) )?no (?:(?:real|integer|complex|positive|valid|such) ){0,2}"
    r"(?:solutions?|roots?|values?|numbers?|integers?)(?: exists?)?",
    re.IGNORECASE,
)
_VALUE_IN_SENTENCE = re.compile(r"(?P<subject>[A-Za-z][A-Za-z ,']*) (?:is|are|equals):? (?P<value>.+)")
# Behind the value: where it is attained.
_REMARK = re.compile(
    r",? (?:(?:attained|achieved|reached) (?:at|when|for|by) [^,;]*|(?:at|when) [a-z](?: ?= ?[a-z])* ?= ?[^ ,;]+)$"
)
_COUNTED_IN_WORDS = re.compile(r"([A-Za-z]+(?:[ -][A-Za-z]+){0,5}) ([a-z]{4,})")
_DOZENS = re.compile(r"([0-9]{1,4}) dozen(?: ([a-z]{4,}))?")
_AMOUNT = re.compile(r"([-0-9][0-9./ ]*(?:\\[dt]?frac\{[0-9]+\}\{[0-9]+\})?) ?([a-z]{3,}?)s?")
_RATIO_IN_WORDS = re.compile(r"([0-9]+) to ([0-9]+)")
_NO_NOUNS = re.compile(
    r"(?:per ?cent|degree|radian|dollar|cent|time|couple|pair|score|dozen|hundred|thousand|halve|third|quarter|\w*th)s"
)
_AFTERNOON = re.compile(r"([0-9]{2}):([0-5][0-9])")
_TIMES = {"noon": "12:00 PM", "midnight": "12:00 AM"}
_LETTER = re.compile(r"\(?([A-K])\)?")
_CHOICE = re.compile(r"\(([A-K])\) *\S|(?<![A-Za-z(])([A-K])[.:)](?: +|(?=\$))\S")
_LETTERS = re.compile(r"\(?[A-K]\)?(?:(?: ?, ?(?:and )?| and | ?& ?|)\(?[A-K]\)?)+")
_PERSON = r"(?!and\b)[A-Za-z]{2,}(?: (?!and\b)[A-Za-z]+)?"
_NAMES = re.compile(rf"{_PERSON}(?:(?:, (?:and )?| and ){_PERSON})+")
_PART = re.compile(r"(?:^|[;,.]? ?)\(([a-e]|i{1,3}|iv|[1-5])\) ?")


def words_of(text: str) -> str:
    """Return an answer without text groups, signs of formulas around it and surplus spaces."""
    return _SPACES.sub(" ", _TEXT.sub(r"\1", text)).strip(" .$")


@lru_cache(maxsize=1 << 13)
def said(text: str) -> set[str]:
    """Return the canonical texts of what a few words say."""
    words = words_of(text)
    readings = set()
    if yes := _YES.match(words):
        readings.add(canonical_text(yes[1]))
    for pattern in (_SENTENCE, _SUBJECT):
        if (sentence := pattern.fullmatch(words)) and (pattern is _SENTENCE or not _SAYS_MORE.search(words)):
            reading = canonical_text(sentence[1])
            if reading.startswith(Tag.WORDS):
                readings.add(reading)
    if _NONE.fullmatch(words):
        readings.add(canonical_text("no solution"))
    if value := value_in_sentence(text):
        readings.add(canonical_text(value))
    counted = _COUNTED_IN_WORDS.fullmatch(words)
    if counted and _is_plural(counted[2]) and (number := number_in_words(counted[1])) and "/" not in number:
        readings.add(canonical_text(number))
    if (dozens := _DOZENS.fullmatch(words)) and (dozens[2] is None or _is_plural(dozens[2])):
        readings.add(canonical_text(str(12 * int(dozens[1]))))
    if ratio := _RATIO_IN_WORDS.fullmatch(words):
        readings.add(canonical_text(f"{ratio[1]}:{ratio[2]}"))
    if (clock := _AFTERNOON.fullmatch(words)) and 12 < int(clock[1]) < 24:
        readings.add(canonical_text(f"{int(clock[1]) - 12}:{clock[2]} PM"))
    if words.casefold() in _TIMES:
        readings.add(canonical_text(_TIMES[words.casefold()]))
    return readings - {""}


def _is_plural(word: str) -> bool:
    return word.endswith("s") and _NO_NOUNS.fullmatch(word) is None and not _alters(word)


def value_in_sentence(text: str) -> str | None:
    """Return `8` of `The minimum is 8, attained at $a = 2$.`; None for a text that is no such sentence."""
    words = words_of(text)
    value = _VALUE_IN_SENTENCE.fullmatch(words)
    if value is None or _alters(value["subject"]):
        return None
    return _REMARK.sub("", value["value"], count=1)


def _alters(words: str) -> bool:
    """Whether words change the value that follows them: `half of the area is`, `the answer is not`."""
    return QUALIFIER.search(words.casefold()) is not None or _SAYS_MORE.search(words) is not None


def same_words(gold: str, answer: str) -> bool:
    """Return whether an answer names the choice, the letters, the names or the values of the parts of a gold answer."""
    gold, answer = words_of(gold), words_of(answer)
    if letter := _LETTER.fullmatch(gold):
        choices = [*_CHOICE.finditer(answer)]
        return len(choices) == 1 and choices[0].start() == 0 and (choices[0][1] or choices[0][2]) == letter[1]
    amounts = _AMOUNT.fullmatch(gold), _AMOUNT.fullmatch(answer)
    if amounts[0] and amounts[1] and amounts[0][2] == amounts[1][2]:  # `1 1/4 cups` and `1.25 cups`
        return canonical_text(amounts[0][1]) == canonical_text(amounts[1][1])
    sets = [_letters(text) or _names(text) for text in (gold, answer)]
    if sets[0] and sets[0] == sets[1]:
        return True
    parts = _parts(gold), _parts(answer)
    return (parts[0] or parts[1]) != [] and (parts[0] or _items(gold)) == (parts[1] or _items(answer))


def _letters(text: str) -> frozenset[str]:
    letters = re.findall("[A-K]", text) if _LETTERS.fullmatch(text) else []
    return frozenset(letters) if len(set(letters)) == len(letters) and letters == sorted(letters) else frozenset()


def _names(text: str) -> frozenset[str]:
    if not _NAMES.fullmatch(text) or _SAYS_MORE.search(re.sub(r"\band\b", "", text)):
        return frozenset()
    return frozenset(re.split(r", (?:and )?| and ", text.casefold()))


def _parts(text: str) -> list[str]:
    """Return the values of the parts of an answer, in order: `(a) 3; (b) 5`."""
    found = [*_PART.finditer(text)]
    if len(found) < 2 or found[0].start():
        return []
    ends = [*(one.start() for one in found[1:]), len(text)]
    return [canonical_text(text[one.end() : end].strip(" ;,.")) for one, end in zip(found, ends, strict=True)]


def _items(text: str) -> list[str]:
    return [canonical_text(item) for item in re.split("[;,]", text)] if not re.search(r"[(\[{]", text) else []
