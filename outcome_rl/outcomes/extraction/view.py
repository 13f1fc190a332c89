"""View of a text without markup: what is said, at the same positions.

A mark becomes as many spaces, and a full-width form or a digit of another script its ASCII form. Both keep the length,
so a span of the view is the span of the text, and the answer mask is exact.
"""

import re

# ASCII of full width but for `！？`, which end a sentence; decimal digits; spaces, brackets and what says nothing.
_DIGITS = (0x660, 0x6F0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xBE6, 0xC66, 0xCE6, 0xE50, *range(0x1D7CE, 0x1D7FF, 10))
_UNSEEN = (0xAD, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
_PICTURES = (
    *range(0x1F300, 0x1FB00),
    *range(0x2600, 0x2776),
    *range(0x2795, 0x27C0),
    0xFE0F,
    0x220E,
    *range(0x25A0, 0x25B0),
)
_PLAIN = {
    **{0xFEE0 + code: code for code in range(0x22, 0x7F) if code != 0x3F},
    **{zero + value: 0x30 + value for zero in _DIGITS for value in range(10)},
    **dict.fromkeys((0xA0, 0x202F, *range(0x2000, 0x200B), 0x3000, *map(ord, "【】「」『』")), 0x20),
    **dict.fromkeys((*_UNSEEN, *_PICTURES), 0x20),
}
# Most texts have none of them, and a search is fast; those outside the basic plane are one range.
_OTHER = re.compile(f"[{''.join(chr(code) for code in _PLAIN if code < 0x10000)}\U0001d7ce-\U0001faff]")
_TAG = re.compile(
    r"</?(?:[abiupq]|em|strong|mark|center|div|span|font|big|small|li|[ou]l|d[ltd]|h[1-6r]|br|code|pre|(?:final_?)?answer)"
    r"(?: [^<>\n]{0,80})?/?>",
    re.IGNORECASE,
)
# A star or a low line that opens or closes emphasis; beside digits, letters and brackets it is a sign of mathematics.
# A fence and backticks, but not the fence of a program.
_EMPHASIS = re.compile(
    r"\*(?<![0-9A-Za-z)\]}\\^_*]\*)\**+(?=\S)|\*(?<=[^\s*^_\\]\*)\**+(?![0-9A-Za-z(\\{])"
    r"|_(?<![0-9A-Za-z)\]}\\_]_)_*+(?=[^\W_])|_(?<=[0-9A-Za-z.:!?]_)_*+(?![\w({\\])"
    r"|```(?:(?:json|text|plaintext|latex|tex|math)\b)?(?![A-Za-z])|`(?<!``)`?(?!`)"
)


def view(text: str) -> str:
    """Return the text without emphasis, HTML tags, fences, emoji, invisible and full-width characters.

    The view has the length of the text, and what is left in it its position.
    """
    if not text.isascii() and _OTHER.search(text):
        text = text.translate(_PLAIN)
    if "<" in text:
        text = _TAG.sub(blank, text)
    return _EMPHASIS.sub(blank, text) if "*" in text or "_" in text or "`" in text else text


def blank(mark: re.Match[str]) -> str:
    """Return as many spaces as a mark has characters."""
    return " " * len(mark[0])
