"""Chemical formulas and equations in several spellings."""

import pytest

from outcome_rl.outcomes.tolerance.chemistry import chemical
from outcome_rl.outcomes.tolerance.within import within_tolerance


@pytest.mark.parametrize(
    "spellings",
    [
        (r"\mathrm{H_2SO_4}", "H2SO4", "H₂SO₄", r"\ce{H2SO4}", r"\text{H}_2\text{SO}_4"),
        (r"\ce{2H2 + O2 -> 2H2O}", "2 H₂ + O₂ → 2 H₂O", r"O_2 + 2H_2 \rightarrow 2H_2O"),
        (r"\ce{Fe^3+}", "Fe^{3+}", "Fe³⁺"),
        (r"\ce{Ca(OH)2}", r"\mathrm{Ca(OH)_2}"),
    ],
)
def test_spellings(spellings: tuple[str, ...]) -> None:
    assert len({chemical(spelling) for spelling in spellings}) == 1
    assert all(within_tolerance(spellings[0], other) for other in spellings[1:])


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("H2SO4", "H2SO3"),
        ("CO", "Co"),
        ("H2O(l) -> H2O(g)", "H2O(g) -> H2O(l)"),
        (r"\text{AgCl(s)}", "AgCl(aq)"),
        ("CO = CN", r"CO \to CN"),
        ("CuSO4 5H2O", "CuSO45H2O"),
        ("Fe^{3+}", "Fe^{2+}"),
        (r"\ce{2H2 + O2 -> 2H2O}", r"\ce{H2 + O2 -> H2O}"),
        (r"\ce{2H2 + O2 -> 2H2O}", r"\ce{2H2O -> 2H2 + O2}"),
    ],
)
def test_others(gold: str, answer: str) -> None:
    assert not within_tolerance(gold, answer)


def test_states_may_be_left_out() -> None:
    assert within_tolerance("2H2(g) + O2(g) -> 2H2O(l)", r"\ce{2H2 + O2 -> 2H2O}")


@pytest.mark.parametrize("text", ["", "x + 1", "AB", "C", "C^2", "12", "V = IR", "K_{sp}", "He is", "2^{3+1}"])
def test_no_chemistry(text: str) -> None:
    assert chemical(text) is None
