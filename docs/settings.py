"""Write the table of settings into training.md, from the declarations in outcome_rl/grpo/config/schema.py.

python docs/settings.py
"""

from pathlib import Path

from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.settings import settings_of

PAGE = Path(__file__).with_name("training.md")
BEGIN, END = "<!-- settings: written by docs/settings.py -->", "<!-- end of settings -->"


def table() -> str:
    lines = ["| setting | default | allowed | |", "|---|---|---|---|"]
    for one in settings_of(TrainConfig):
        default, allowed = (f"`{text}`" if text else "" for text in (one.default_text, one.allowed))
        cells = (f"`{one.name}`", default, allowed, one.help)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with its table brought up to date."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
