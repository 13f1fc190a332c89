"""Samples at 80 columns, and with text that looks like markup."""

import io

import pytest
from rich.console import Console

from outcome_rl.tools.sample_table import samples_table

SAMPLE = {
    "step": 6,
    "question": r"What is [bold]\frac{1}{2}[/bold] + [x]?" + " very" * 60 + " long",
    "completion": "thinking " * 60 + r"so \boxed{[/]}",
    "gold": "1/2",
    "outcome": "[/]",
    "reward": 0.0,
    "count": 3,
    "bonus": 0.05,
    "advantage": -1.25,
}


@pytest.mark.parametrize("width", [80, 120])
def test_samples_fit_and_show_text_as_it_is(width: int) -> None:
    output = io.StringIO()
    rows = [SAMPLE, {**SAMPLE, "outcome": None, "gold": "12345678901234567890"}]
    Console(file=output, width=width, _environ={}).print(samples_table(rows))
    text = output.getvalue()
    assert max(map(len, text.splitlines())) <= width
    for shown in ("samples of step 6", "[bold]", "[/]", "none", "+0.050", "-1.250"):
        assert shown in text
    # The end of a completion holds its answer, the start of a question what is asked.
    assert r"\boxed{[/]}" in text.replace("\n", "")
    assert "What is" in text
