"""Responses that announce an answer, and answers as people write them, each with what a reader takes it for, by class.

Two draws of a class are a pair that is equal if their values are, and one that is not if they are not. `CLASSES` are
responses and `WRITTEN` answers; `LOOK_ALIKES` are texts behind a value that belong to it.
"""

import re
from collections.abc import Hashable, Sequence
from typing import Any

from hypothesis import strategies as st
from tables import rows

from outcome_rl.outcomes.extraction.announcements import LANGUAGES

Case = tuple[str, str]
"""A response, and its answer."""

NUMBERS = ("18", "-7", "1,250", "12.5", "3/4", "0", "1024")
FORMULAS = (r"$18$", r"$\frac{3}{4}$", "$(2, 3)$", "$x + 1$", r"\(x = 5\)", "$-7$")
# Without signs of mathematics around them.
UNSIGNED = (
    "sqrt(5)/2", "log_3(7)", "2 pi", "π²/6", "x > 5 or x < -5", "2^(n+1)", "4 + 2sqrt(3)", "arctan(2)", "e^3 - 1",
    "Fraction(3, 7)",
)  # fmt: skip
CHOICES = ("A", "B", "C", "D")
LABELS = ("Answer", "Final Answer", "The answer", "The final answer", "ANSWER", "Correct Answer", "answer")
DECORATIONS = (
    ("", ""), ("**", "**"), ("*", "*"), ("_", "_"), ("__", "__"), ("***", "***"), ("<b>", "</b>"),
    ("<strong>", "</strong>"), (r"\textbf{", "}"), ("<u>", "</u>"), ("`", "`"),
)  # fmt: skip
STARTS = ("", "- ", "* ", "> ", "### ", "1. ", "# ", "> **Note** ", "✅ ", "• ", "<p>", "\u200e")
COLONS = (": ", ":", " : ", "\xa0: ", "：", " = ", " is ", ":\n", ":\n\n", " is: ", " — ")
TAILS = (
    "", ".", " ✅", " ✓", ", I think", ", I believe.", " (since 9 + 9)", " because it is", " \u220e", "</b>",
    "</answer>", " [1].", " QED", " - done", " → done", " I hope it is correct.", r" $\blacksquare$", "<br>",
    "\u200b", ". Done!", " 🎉", "<|im_end|>", ".\n\nLet me know if you have questions!", " as required.",
    ", which is final.", "  \n",
)  # fmt: skip
HEADS = (
    "", "actually ", "exactly ", "equal to ", "found to be ", "approximately ", "given by ", "simply ", "that ",
    "therefore ", "thus ", "the value ", "a total of ",
)  # fmt: skip
WORK = ("We add 9 and 9.\n", "9 + 9 is the sum.\n\n", "Let x be 3, so 2x = 6.\n", "<think>\nhm, 9?\n</think>\n\n")
# What follows a number and belongs to it.
LOOK_ALIKES = (" million", " dozen", r"\%", " squared", " (mod 7)", " + x", r" \sqrt{2}", " or 19", " thousand", "^2")


Meant = tuple[str, Hashable]
"""An answer, and its meaning: two answers are equal if these are."""


def _forms(values: Sequence[Any], *forms: str, before: Sequence[str] = ("",)) -> st.SearchStrategy[Any]:
    """Write a value in one of several forms, which mean the same, behind one of several texts."""
    drawn = st.tuples(st.sampled_from(before), st.sampled_from(forms), st.sampled_from(values))
    return drawn.map(lambda one: (one[0] + one[1].replace("@", str(one[2])), one[2]))


def _table(name: str, values: Sequence[Any], before: Sequence[str] = ("",)) -> st.SearchStrategy[Any]:
    return _forms(values, *(form for _, form in rows(__file__, name)), before=before)


@st.composite
def labelled(draw: st.DrawFn) -> Case:
    (opening, closing), value = draw(st.sampled_from(DECORATIONS)), draw(st.sampled_from(NUMBERS + FORMULAS + CHOICES))
    label = draw(st.sampled_from(LABELS))
    line = f"{draw(st.sampled_from(STARTS))}{opening}{label}{closing}{draw(st.sampled_from(COLONS))}{value}"
    return draw(st.sampled_from(WORK)) + line, value


@st.composite
def whole_line_decorated(draw: st.DrawFn) -> Case:
    (opening, closing), value = (
        draw(st.sampled_from(DECORATIONS[1:-1])),
        draw(st.sampled_from(NUMBERS + FORMULAS + CHOICES)),
    )
    label, colon = draw(st.sampled_from(LABELS)), draw(st.sampled_from((": ", "：", " is ")))
    around = draw(st.sampled_from(("{}", "({})", "[{}]", "{}.")))
    return draw(st.sampled_from(WORK)) + opening + around.format(f"{label}{colon}{value}") + closing, value


LEADS = ("Answer: ", "The answer is ", "**Final Answer**: ")
with_tail = _forms(NUMBERS + FORMULAS, *(f"{lead}@{tail}" for lead in LEADS for tail in TAILS), before=WORK)
plain = _table("statements", NUMBERS[:4])
choice = _table("choices", CHOICES, ["Oxygen has eight protons.\n"])
hash_mark = _table("GSM8K", NUMBERS, ["9 + 9\n"])
# Tags, keys of JSON, headings with the value below, and boxes, decorated or not.
marked = _table("marks", NUMBERS + CHOICES, WORK)


@st.composite
def of_language(draw: st.DrawFn) -> Case:
    row = draw(st.sampled_from(LANGUAGES[1:]))
    value = draw(st.sampled_from(("18", "$18$", "12.5", "-7")))
    subject = draw(
        st.sampled_from(
            [re.sub(r"\(.*|\[(.).*|\?", r"\1", word) for word in row.answer.split("|") if "(?=" not in word]
        )
    )
    link = draw(
        st.sampled_from([": ", "：", ":", *(f" {verb} " for verb in row.link.split("|") if not set(verb) & set("?["))])
    )
    end = draw(st.sampled_from(("", ".", "。", "।", "\n")))
    subject = draw(st.sampled_from((subject, subject.capitalize(), f"**{subject}**")))
    return f"9 + 9\n{subject}{link if link.strip() else ': '}{value}{end}", value


@st.composite
def after_reasoning(draw: st.DrawFn) -> Case:
    response, answer = draw(st.one_of(labelled(), with_tail, choice, plain))
    end = draw(st.sampled_from(("</think>", "[/THINK]", "</reasoning>", "<|end_of_thought|>", "</tool_response>")))
    response = response.replace("<think>", "").replace("</think>", "")
    return rf"<think>Perhaps \boxed{{3333}}. The answer is 4444.{end}" + "\n\n" + response, answer


COUNTS = ("18", "1,250", "12.5", "$7", "1024")
NOUNS = ("pens", "red marbles", "students", "different orders", "coins", "positive divisors", "rows of chairs", "km")
QUALIFIERS = (
    "", " in 4 weeks", " per box", " for each of the 3 teams", " between 5 and 90", " that were sold on day 2",
    " of milk", ", representing 30% of the class", " (none of them new)", ", the same as before", " left over",
    " have this property", " every 2 days",
)  # fmt: skip
CLAUSES = (
    "Ruth paid Ann @", "it takes Leo @", "They went to @", "each of them has @", "Mr. Li sold @", "There are @", "@",
    "the total number is @", "The rest is @", "St. Moritz has @", "she will get a total of @",
    "Dr. Bo and Ms. Yu need approx. @", "Out of 30, she has @",
)  # fmt: skip


@st.composite
def described(draw: st.DrawFn) -> Case:
    """A noun phrase or a clause with one head quantity."""
    lead, clause, noun, qualifier, value, end = map(
        draw,
        map(st.sampled_from, (
            ("Answer: ", "**Answer:** ", "The answer is that "), CLAUSES, NOUNS, QUALIFIERS, COUNTS,
            (".", "", "!"),
        )),
    )  # fmt: skip
    return f"{draw(st.sampled_from(WORK))}{lead}{clause.replace('@', value)} {noun}{qualifier}{end}", value


@st.composite
def concluded(draw: st.DrawFn) -> Case:
    """A conclusion in such a clause, without an announcement."""
    lead, clause, noun, qualifier, value = (
        draw(st.sampled_from(part))
        for part in (("So ", "Therefore, ", "Thus "), CLAUSES[:-2], NOUNS, QUALIFIERS, COUNTS)
    )
    return f"{draw(st.sampled_from(WORK))}{lead}{clause.replace('@', value)} {noun}{qualifier}.", value


# A response that was cut off states a step on the way, not another answer.
cut_off = _forms(
    NUMBERS[:4],
    *(
        f"{answered}{step}"
        for answered in (
            "<think>So it is \\boxed{@}.</think>\n\nWe add the pens.\n\n", "The answer is @.\n\nWait, let me check.\n",
            "#### @\nHmm, I made a mistake. ", "<think>So the answer is @.</think>\n\n### Step 1\n",
        )
        for step in (
            "So she has 9 pens and 45", "First, $9 + 45 = 54$ and", "She has **45 pens** in the",
            "That is 45 + 9. Then 45",
        )
    ),
)  # fmt: skip
house_numbers = _forms(
    NUMBERS[:4],
    *(
        f"{lead}{subject} {clause} is @{end}"
        for lead in ("Answer: ", "Final answer:\n", "The answer is that ")
        for subject, clause in (
            ("The number", "of the house where the pens are"), ("the house number", "where the owner of the cat lives"),
            ("The total", "of the pens that she has"),
        )
        for end in ("", ".")
    ),
    before=WORK,
)  # fmt: skip
subjects = _forms(
    COUNTS,
    *(
        f"{lead}{clause}"
        for lead in ("Answer: ", "Therefore, ", "The answer is that ")
        for clause in (
            "9 pens will cost @ dollars.", "the 9 friends had a total of @ pens.", "after 9 weeks he owns @ pens.",
            "a flock of 9 ducks needs @ kg of corn.", "in 9 days she can read @ pages.",
        )
    ),
    *(f"答え：{clause}" for clause in ("彼は9日間で@個を食べます。", "1人あたり@ドルです。", "9日には@個です。")),
    before=WORK,
)  # fmt: skip
rates = _forms(
    ("18", "1,250", "1024"),
    *(
        f"{lead}{clause}"
        for lead in ("Answer: ", "Therefore, ", "The answer is that ")
        for clause in (
            "the board is wiped @ times per day.", "it was loaded a total of @ times over the 3 months.",
            "he earns $@/week.", "she owes $@ al mes.",
        )
    ),
    *(f'Answer: "{clause}"' for clause in ("Ann is @ years old.", "There are @ mice in each pen.")),
    before=WORK,
)  # fmt: skip
WORDS = ("apple", "prod", "same", "quartz", "violet", "yonder", "bassoon", "hydra")
rows_of_words = st.tuples(
    st.sampled_from(("The answer is ", "Answer: ", "The sorted list: done.\n**Final Answer:**\n")),
    st.lists(st.sampled_from(WORDS), min_size=2, max_size=30).map(" ".join),
).map(lambda said: ("".join(said), said[1]))
clocks = _forms(
    ("9:30 A.M", "10:05 P.M", "7:45 AM", "12:00 pm"), "The bus arrives at @.", "The game that Ann likes begins at @.",
    before=WORK,
)  # fmt: skip
dates = _forms(
    ("07/24/1997", "1997-07-24"),
    "The date 10 days ago was @.", "So the date 24 hours later would be @.", "The date one week after 07/17/1997 is @.",
    before=WORK,
)  # fmt: skip
worded_answers = _table("words", ("Yes", "No", "Friday", "False", "green", "Evelyn"), WORK)
with_tags = _table("tags behind", ("18", "D", "$x+1$"), WORK)
chosen = _table("choices and values", CHOICES, ["Oxygen has eight protons.\n"])
several_letters = _table("several letters", ("AC", "BD", "ABD"), ["Let us see.\n"])
corrections = _table("corrections", NUMBERS[:4], WORK)
MISTAKES = (
    "Wait, that is wrong.", "Sorry, I made a mistake.", "Oops.", "Hold on, I misread it.", "Let me redo it.",
    "But wait, I dropped a sign.", "Scratch that.", "Upon re-checking, there is an error.", "No, that was incorrect.",
)  # fmt: skip
retractions = _forms(
    NUMBERS[:4],
    *(
        f"{label}{mistake} {new}"
        for label in ("Answer: 45\n\n", "The answer is 45. ", "#### 45\n", '{"answer": "45"}\n', "\\boxed{45}. ")
        for mistake in MISTAKES
        for new in ("It should be @.", "The total is @.", "The right value is @ pens.", "So it is @, not 45.")
    ),
    before=WORK,
)
SAID = ("I think it is ", "I'd say ", "we get ", "my guess is ", "it must be ", "that gives ", "clearly ", "")
denials = _forms(
    ("18", "-7", "12.5", "$x + 1$", "B", "(D)"),
    *(
        f"{lead}{form}"
        for lead in ("The answer is ", "So the final answer must be ")
        for form in (
            *(f"{said}@." for said in SAID), "@ rather than 45.", "@, not 45.", "@ (not 45).", "@; 45 fails the test.",
            "not 45 but @.", "not 45, it is @.", "@, whereas $y$ is wrong.", "@, unlike A.", "@, i.e. the first one.",
        )
    ),
    "The answer cannot be 45. It must be @.", "The answer isn't 45, it's @.", "The answer can't be A, so it must be @.",
    before=WORK,
)  # fmt: skip
fields = _forms(
    ("18", "-7", "B", "x+1", "Yes"),
    *(
        opening + key + separator + value + closing
        for opening, closing in (('{"why": "9, 9", ', "}"), ("```json\n{\n  ", ', "sure": 0.9\n}\n```'), ("[{", "}]"))
        for key in ('"answer"', "'finalAnswer'", '"correct_answer"', '\\"Final Answer\\"')
        for separator in (": ", ":", " : ")
        for value in ('"@"', "'@'", '["@"]', '{"value": "@"}', '"\\"@\\""', '"The answer is @."', '"**@**"')
    ),
)
last_choices = _forms(
    CHOICES,
    "I would pick @ - a safe one.", "It is @.", "It's @", "Only @ works.", "So option @ is the correct one.",
    "Hence we choose:\n\n**@. Oxygen is 8**", "Option: @", "My choice is:\n(@) 12 cm", "**@**", "(@)", "Going with @.",
    before=["Oxygen has eight protons.\n"],
)  # fmt: skip
CLASSES: dict[str, st.SearchStrategy[Case]] = {
    "described numbers": described(),
    "concluded numbers": concluded(),
    "cut off": cut_off,
    "numbers of a place": house_numbers,
    "rates, and sentences in quotation marks": rates,
    "rows of words": rows_of_words,
    "what a clause is about": subjects,
    "times of day": clocks,
    "dates": dates,
    "words": worded_answers,
    "tags behind": with_tags,
    "choices and values": chosen,
    "several letters": several_letters,
    "corrections": corrections,
    "retractions": retractions,
    "denials": denials,
    "fields of JSON": fields,
    "choices of the last line": last_choices,
    "labels": labelled(),
    "whole lines": whole_line_decorated(),
    "tails": with_tail,
    "heads": _forms(NUMBERS + FORMULAS, *(f"The answer is {head}@." for head in HEADS), before=WORK),
    "formulas without signs": _forms(
        UNSIGNED, "The answer is @.", "Answer: @", "The result is @.", "So the value is @.", before=WORK
    ),
    "last sentences": _forms(
        (*FORMULAS, "3:4", "250 mA", "25°C"), "The slope is @.", "First we factor. The least value is @.", before=WORK
    ),
    "languages": of_language(),
    "after reasoning": after_reasoning(),
    "statements after reasoning": plain.map(lambda case: ("<think>9?</think>\n" + case[0], case[1])),
    "choices": choice,
    "GSM8K": hash_mark,
    "marks": marked,
}
_SMALL = (2, 3, 5)


@st.composite
def statements(draw: st.DrawFn) -> Meant:
    """Lists of numbered statements: `①③`, `(1)(3)`."""
    chosen = sorted(draw(st.sets(st.integers(1, 4), min_size=2, max_size=3)))
    mark, joint = draw(
        st.sampled_from((("①②③④", ""), ("①②③④", ", "), ("①②③④", "、"), (("(1)", "(2)", "(3)", "(4)"), "")))
    )
    return joint.join(mark[number - 1] for number in chosen), tuple(chosen)


@st.composite
def worded(draw: st.DrawFn) -> Meant:
    """A value and words before it, which belong to it: `\\text{max at } x = 2`."""
    words = draw(st.sampled_from(("", "max at", "min at", "undefined at", "at least", "twice", "continuous at")))
    value = draw(st.sampled_from(_SMALL))
    before = rf"\text{{{words} }}" if words else ""
    return before + draw(st.sampled_from(("x={}", "x = {}", r"\,x={}"))).format(value), (words, value)


@st.composite
def separated(draw: st.DrawFn) -> Meant:
    """Two digits as a list, a decimal, a time of day, a list that goes on."""
    low, high = sorted(draw(st.sets(st.integers(1, 5), min_size=2, max_size=2)))
    form, *meaning = draw(st.sampled_from((
        ("{},{}", "list"), ("{}, {}", "list"), (r"\{{{}, {}\}}", "list"), ("{}.{}", "decimal"),
        ("{}.{}0", "decimal"), ("{}:{}0", "time"), ("{},{},...", "goes on"),
    )))  # fmt: skip
    return form.format(low, high), (*meaning, low, high)


WRITTEN: dict[str, st.SearchStrategy[Meant]] = {
    "numbers of statements": statements(),
    "words before a name": worded(),
    "separators": separated(),
    "an equation and its right side": st.one_of(
        _forms(_SMALL, "@"), _forms(_SMALL, "x + y = @", "y + x = @").map(lambda case: (case[0], ("sum", case[1])))
    ),
    "units in other languages": _forms(_SMALL, "@", "@元", r"@\text{元}", "共@个", "@种", "@次"),
    "decorations": _forms(_SMALL, "@", r"@ \checkmark", r"@ \blacksquare", "~@~", r"@\tag{1}", r"@\hspace{1cm}"),
    "choices and their texts": _forms(CHOICES, "@", "(@)", "@) 12", "@. Oxygen"),
    "escapes": _forms(_SMALL, "@", r"\$@", r"\\$@", "$@$", r"@\%", r"@\\%"),
}
