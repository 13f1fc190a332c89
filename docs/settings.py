"""Write settings.md: every setting of the trainer, as `outcome-rl train --settings` prints them.

python docs/settings.py
"""

from pathlib import Path

from outcome_rl.tools.settings_file import settings_yaml

PAGE = Path(__file__).with_name("settings.md")
HEAD = """# Settings

Every setting of `outcome-rl train`, with its default, as `outcome-rl train --settings` prints them. Names follow verl
where it has one; defaults are the paper's hyperparameters, except for the method of exploration, which is
[the recommended one](methods.md). On the command line a setting is its dotted name, such as `actor.optim.lr=1e-6`.
[Training](training.md) explains how they are used.

"""


def page() -> str:
    """Return the text of the page."""
    return f"{HEAD}```yaml\n{settings_yaml()}```\n"


if __name__ == "__main__":
    PAGE.write_text(page())
