"""Responses that announce an answer, each with the text that a reader takes, by class.

Two draws of a class are a pair that is equal if their values are, and one that is not if they are not. `CLASSES` has
the names; `LOOK_ALIKES` are texts behind a value that belong to it.
"""

import re
from collections.abc import Callable

from hypothesis import strategies as st

from outcome_rl.outcomes.extraction.announcements import LANGUAGES

Case = tuple[str, str]
"""A response, and its answer."""

NUMBERS = ("18", "-7", "1,250", "12.5", "3/4", "0", "1024")
FORMULAS = (r"$18$", r"$\frac{3}{4}$", "$(2, 3)$", "$x + 1$", r"\(x = 5\)", "$-7$")
CHOICES = ("A", "B", "C", "D")
LABELS = ("Answer", "Final Answer", "The answer", "The final answer", "ANSWER", "Correct Answer", "answer")
DECORATIONS = (
    ("", ""),
    ("**", "**"),
    ("*", "*"),
    ("_", "_"),
    ("__", "__"),
    ("***", "***"),
    ("<b>", "</b>"),
    ("<strong>", "</strong>"),
    (r"\textbf{", "}"),
    ("<u>", "</u>"),
    ("`", "`"),
)
STARTS = ("", "- ", "* ", "> ", "### ", "1. ", "# ", "> **Note** ", "✅ ", "• ", "<p>", "\u200e")
COLONS = (": ", ":", " : ", "\xa0: ", "：", " = ", " is ", ":\n", ":\n\n", " is: ", " — ")
TAILS = (
    "",
    ".",
    " ✅",
    " ✓",
    ", I think",
    ", I believe.",
    " (since 9 + 9)",
    " because it is",
    " \u220e",
    "</b>",
    "</answer>",
    " [1].",
    " QED",
    " - done",
    " → done",
    " I hope it is correct.",
    r" $\blacksquare$",
    "<br>",
    "\u200b",
    ". Done!",
    " 🎉",
    "<|im_end|>",
    ".\n\nLet me know if you have questions!",
    " as required.",
    ", which is final.",
    "  \n",
)
HEADS = (
    "",
    "actually ",
    "exactly ",
    "equal to ",
    "found to be ",
    "approximately ",
    "given by ",
    "simply ",
    "that ",
    "therefore ",
    "thus ",
    "the value ",
    "a total of ",
)
WORK = ("We add 9 and 9.\n", "9 + 9 is the sum.\n\n", "Let x be 3, so 2x = 6.\n", "<think>\nhm, 9?\n</think>\n\n")
# What follows a number and belongs to it.
LOOK_ALIKES = (" million", " dozen", r"\%", " squared", " (mod 7)", " + x", r" \sqrt{2}", " or 19", " thousand", "^2")


def value_of(text: str) -> str:
    """Return the text of an answer without spaces, the brackets of a choice, and the name of a value."""
    return text.replace(" ", "").strip("()$").removeprefix("x=")


def inside(value: str) -> str:
    """Return a value without the signs of a formula around it."""
    return value.strip("$").removeprefix(r"\(").removesuffix(r"\)")


def _values() -> st.SearchStrategy[str]:
    return st.sampled_from(NUMBERS + FORMULAS + CHOICES)


@st.composite
def labelled(draw: st.DrawFn) -> Case:
    (opening, closing), value = draw(st.sampled_from(DECORATIONS)), draw(_values())
    label = draw(st.sampled_from(LABELS))
    line = f"{draw(st.sampled_from(STARTS))}{opening}{label}{closing}{draw(st.sampled_from(COLONS))}{value}"
    return draw(st.sampled_from(WORK)) + line, value_of(inside(value))


@st.composite
def whole_line_decorated(draw: st.DrawFn) -> Case:
    (opening, closing), value = draw(st.sampled_from(DECORATIONS[1:-1])), draw(_values())
    label, colon = draw(st.sampled_from(LABELS)), draw(st.sampled_from((": ", "：", " is ")))
    around = draw(st.sampled_from(("{}", "({})", "[{}]", "{}.")))
    return draw(st.sampled_from(WORK)) + opening + around.format(f"{label}{colon}{value}") + closing, value_of(
        inside(value)
    )


@st.composite
def with_tail(draw: st.DrawFn) -> Case:
    value, tail = draw(st.sampled_from(NUMBERS + FORMULAS)), draw(st.sampled_from(TAILS))
    lead = draw(st.sampled_from(("Answer: ", "The answer is ", "**Final Answer**: ")))
    return draw(st.sampled_from(WORK)) + lead + value + tail, value_of(inside(value))


@st.composite
def with_head(draw: st.DrawFn) -> Case:
    value, head = draw(st.sampled_from(NUMBERS + FORMULAS)), draw(st.sampled_from(HEADS))
    return f"{draw(st.sampled_from(WORK))}The answer is {head}{value}.", value_of(inside(value))


@st.composite
def of_language(draw: st.DrawFn) -> Case:
    row = LANGUAGES[draw(st.sampled_from(sorted(LANGUAGES)))]
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
    return f"9 + 9\n{subject}{link if link.strip() else ': '}{value}{end}", value_of(inside(value))


@st.composite
def after_reasoning(draw: st.DrawFn) -> Case:
    response, answer = draw(st.one_of(labelled(), with_tail(), choice(), plain()))
    end = draw(st.sampled_from(("</think>", "[/THINK]", "</reasoning>", "<|end_of_thought|>", "</tool_response>")))
    response = response.replace("<think>", "").replace("</think>", "")
    return rf"<think>Perhaps \boxed{{3333}}. The answer is 4444.{end}" + "\n\n" + response, answer


@st.composite
def plain(draw: st.DrawFn) -> Case:
    value = draw(st.sampled_from(NUMBERS[:4]))
    form = draw(
        st.sampled_from(
            (
                "That gives {}.",
                "Tom has {} apples left.",
                "It equals {}.",
                "x is {}",
                "Total: {}",
                "So x = {}.",
                "{}",
                "**{}**",
                "This means x = {}.",
                "We get {}.",
                "Hence {}.",
                "There are {} ways.",
            )
        )
    )
    return form.format(value), value


@st.composite
def choice(draw: st.DrawFn) -> Case:
    letter = draw(st.sampled_from(CHOICES))
    form = draw(
        st.sampled_from(
            (
                "Option {} is correct.",
                "{} is the correct answer.",
                "So, {} is the answer.",
                "The correct option is {}.",
                "The answer is option {}: Oxygen",
                "Answer: [{}]",
                "Answer: ({})",
                "Answer: {}. Oxygen",
                "Answer: {}) Oxygen",
                "The correct answer is {} - Oxygen",
                "**Answer**: {}",
                "The answer is (**{}**).",
                "**Answer: {}**",
                "Thus {}",
                "Therefore, the answer is **{}**.",
                "The best choice is {}.",
                "({}) is the right answer.",
            )
        )
    )
    return "Oxygen has eight protons.\n" + form.format(letter), letter


@st.composite
def hash_mark(draw: st.DrawFn) -> Case:
    value = draw(st.sampled_from(NUMBERS))
    form = draw(
        st.sampled_from(
            (
                "#### {}",
                "so 18 dollars. #### {}",
                "  #### {}",
                "##### {}",
                "#### x = {}",
                "#### 9*2 = {}",
                "> #### {}",
                "- #### {}",
                "`#### {}`",
                "#### {} dollars",
                "#### {} (dollars)",
                "#### {} dollars per day",
                "#### **{}**",
                "#### {} #### {}",
                "#### {}\n",
                "####{}",
                "#### ${}",
            )
        )
    )
    return "9 + 9\n" + form.replace("{}", value), value


@st.composite
def marked(draw: st.DrawFn) -> Case:
    """Tags, keys of JSON, headings with the value below, and boxes, decorated or not."""
    value = draw(st.sampled_from(NUMBERS + CHOICES))
    form = draw(
        st.sampled_from(
            (
                "<answer>{}</answer>",
                "<final_answer>\n{}\n</final_answer>",
                "[ANSWER]{}[/ANSWER]",
                '{"answer": "{}"}',
                '```json\n{"steps": [], "final_answer": "{}"}\n```',
                "### Final Answer\n{}",
                "**Final Answer**\n\n{}\n",
                "## The answer\n\n${}$",
                r"\boxed{{}}",
                r"**\boxed{{}}**",
                r"$\fbox{ {} }$.",
                "$\boxed{{}}$",
            )
        )
    )
    return draw(st.sampled_from(WORK)) + form.replace("{}", value), value


CLASSES: dict[str, Callable[[], st.SearchStrategy[Case]]] = {
    "labels": labelled,
    "whole lines": whole_line_decorated,
    "tails": with_tail,
    "heads": with_head,
    "languages": of_language,
    "after reasoning": after_reasoning,
    "statements after reasoning": lambda: plain().map(lambda case: ("<think>9?</think>\n" + case[0], case[1])),
    "choices": choice,
    "GSM8K": hash_mark,
    "marks": marked,
}
