"""Other graders of answers, reimplemented from their published rules, for `python -m bench.outcomes`.

- `hendrycks`: string rules of the MATH dataset (hendrycks/math, modeling/math_equivalence.py), which verl's
  verl/utils/reward_score/math_reward.py uses: normalise both texts, compare strings.
- `qwen`: Qwen2.5-Math's evaluation (QwenLM/Qwen2.5-Math, evaluation/grader.py): a number may be off by 1e-4 of itself
  and by a factor of 100; lists go element by element, the rest to sympy.
- `math_verify`: math-verify as verl's verl/utils/reward_score/math_verify.py calls it: gold as boxed LaTeX, prediction
  as an expression or LaTeX, its own timeouts on.
"""

import re
import signal
from collections.abc import Callable
from math import isclose
from typing import Any

Grader = Callable[[str, str], bool]
SYMPY_SECONDS = 3


def hendrycks(gold: str, prediction: str) -> bool:
    return _hendrycks(gold) == _hendrycks(prediction)


def _hendrycks(text: str) -> str:
    for old, new in (
        *(
            ("\n", ""),
            ("\\!", ""),
            ("\\\\", "\\"),
            ("tfrac", "frac"),
            ("dfrac", "frac"),
            ("\\left", ""),
            ("\\right", ""),
        ),
        *(("^{\\circ}", ""), ("^\\circ", ""), ("\\$", "")),
    ):
        text = text.replace(old, new)
    text = text.split("\\text{ ")[0] if text.count("\\text{ ") == 1 else text  # a unit on the right
    text = text.replace("\\%", "").replace(" .", " 0.").replace("{.", "{0.")
    text = f"0{text}" if text.startswith(".") else text
    left, equals, right = text.partition("=")
    text = right if equals and "=" not in right and len(left) <= 2 else text  # `k = 5`
    text = re.sub(r"\\sqrt([^{])", r"\\sqrt{\1}", text).replace(" ", "")
    text = re.sub(r"\\frac([^{])([^{])", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac([^{])\{", r"\\frac{\1}{", text)
    text = "\\frac{1}{2}" if text == "0.5" else text
    return re.sub(r"^(-?[0-9]+)/(-?[0-9]+)$", r"\\frac{\1}{\2}", text)


def qwen(gold: str, prediction: str) -> bool:
    gold, prediction = _qwen_normal(gold), _qwen_normal(prediction)
    if gold.lower() == prediction.lower():
        return True
    if gold in tuple("ABCDE") and re.sub(r"[^A-E]", "", prediction)[-1:] == gold:
        return True
    a, b = _qwen_number(gold), _qwen_number(prediction)
    if a is not None and b is not None:
        return any(isclose(value, b, rel_tol=1e-4) for value in (a / 100, a, 100 * a))
    if not prediction:
        return False
    if all(text[:1] in tuple("([") and text[-1:] in tuple(")]") for text in (gold, prediction)):
        parts = [text[1:-1].split(",") for text in (gold, prediction)]
        if len(parts[0]) == len(parts[1]) > 1:
            return all(qwen(x, y) for x, y in zip(*parts, strict=True))
    if all(text.startswith("\\begin{pmatrix}") for text in (gold, prediction)):
        cells = [re.split(r"\\\\|&", text[15:].removesuffix("\\end{pmatrix}")) for text in (gold, prediction)]
        return len(cells[0]) == len(cells[1]) and all(qwen(x, y) for x, y in zip(*cells, strict=True))
    sides = [text.split("=") for text in (gold, prediction)]
    if len(sides[0]) == len(sides[1]) == 2:
        (a1, a2), (b1, b2) = sides
        difference, other = f"{a1}-({a2})", f"{b1}-({b2})"
        return _sympy_equal(difference, other) or _sympy_equal(f"-({difference})", other)
    for (left, *right), other in ((sides[0], prediction), (sides[1], gold)):
        if len(right) == 1 and len(left.strip()) <= 2 and "=" not in other and qwen(right[0], other):
            return True
    return _sympy_equal(gold, prediction)


def _qwen_normal(text: str) -> str:
    text = text.strip().replace("\n", "").rstrip(".").replace("\\!", "").replace("\\ ", "")
    for matrix in ("array}{cc", "array}{ccc", "bmatrix", "matrix"):
        text = text.replace(f"{{{matrix}}}", "{pmatrix}")
    text = text.replace("tfrac", "frac").replace("dfrac", "frac").replace("\\neq", "\\ne").replace("\\leq", "\\le")
    text = (
        text.replace("\\geq", "\\ge")
        .replace("\\left", "")
        .replace("\\right", "")
        .replace("\\{", "{")
        .replace("\\}", "}")
    )
    text = re.sub(r"\\text\{(.*?)\}$", "", text).strip() or re.sub(r"\\text\{(.*?)\}$", r"\1", text)
    for gone in ("^{\\circ}", "^\\circ", "\\$", "$", "\\(", "\\)", "\\%", "%", "\\mathrm", "\\mathbf", "\\mbox"):
        text = text.replace(gone, "")
    text = re.sub(r"\\text\{(.*?)\}", r"\1", text)
    for prefix in ("x=", "y=", "z=", "x\\in", "y\\in", "z\\in"):
        text = text.replace(prefix, "")
    text = text.replace("infinity", "\\infty").replace("and", "").replace(" .", " 0.").replace("{.", "{0.")
    text = re.sub(r"([0-9]+)\.0+(?![0-9])", r"\1", text)
    text = f"0{text}" if text.startswith(".") else text
    left, equals, right = text.partition("=")
    text = right if equals and "=" not in right and len(left.strip()) <= 2 else text
    text = re.sub(r"\\sqrt(\w+)", r"\\sqrt{\1}", text).replace(" ", "")
    text = re.sub(r"\\frac([^{])([^{])", r"\\frac{\1}{\2}", text)
    return re.sub(r"^(-?[0-9]+)/(-?[0-9]+)$", r"\\frac{\1}{\2}", text)


def _qwen_number(text: str) -> float | None:
    text = text.replace(",", "")
    try:
        return float(text.removesuffix("%").removesuffix("\\")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return None


def _sympy_equal(a: str, b: str) -> bool:
    import sympy

    def overdue(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, overdue)
    signal.alarm(SYMPY_SECONDS)
    try:
        x, y = _sympy(a), _sympy(b)
        if x == y or sympy.simplify(x - y) == 0:
            return True
        return isclose(float(sympy.N(x)), float(sympy.N(y)), rel_tol=1e-4)
    except Exception:  # noqa: BLE001 - as the original: whatever sympy cannot read or compare is not equal
        return False
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _sympy(text: str) -> Any:
    from latex2sympy2_extended import latex2sympy

    return latex2sympy(text)


def math_verify(gold: str, prediction: str) -> bool:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    golds = parse(f"\\boxed{{{gold}}}", (LatexExtractionConfig(),))
    return bool(verify(golds, parse(f"\\boxed{{{prediction}}}", (ExprExtractionConfig(), LatexExtractionConfig()))))


BASELINES: dict[str, Grader] = {
    "math-verify": math_verify,
    "verl (Hendrycks' strings)": hendrycks,
    "Qwen2.5-Math": qwen,
}
