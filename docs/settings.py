"""Write the settings into training.md, as `outcome-rl train --settings` prints them.

python docs/settings.py
"""

from pathlib import Path

from outcome_rl.grpo.config.load import settings_yaml

PAGE = Path(__file__).with_name("training.md")
BEGIN, END = "<!-- settings: written by docs/settings.py -->", "<!-- end of settings -->"


def page(text: str) -> str:
    """Return the page with the current settings."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n```yaml\n{settings_yaml()}```\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
