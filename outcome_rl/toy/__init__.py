"""The toy: problems of a verifiable arithmetic task and a tiny policy, small enough for the installed package.

A question such as `D07 17 @ 5 # 3 =>` names a dialect, a start value and two steps of a symbol and a digit. The meaning
of a symbol in a dialect is a hidden operation modulo 53. `experiments/toy/` of the repository makes the task, its other
rule tables and the policy.
"""

from pathlib import Path
from typing import Literal, get_args

Split = Literal["train", "validation", "test"]
ABOUT = "toy: D07 17 @ 5 => means 17 @ 5 modulo 53; what @ does in dialect 7 is hidden"
_FOLDER = Path(__file__).parent


def problems(split: Split) -> list[dict[str, str]]:
    """Return the problems of a split: 512 for "train", 256 for "validation", 1,024 for "test".

    Returns:
        Rows `{"id": "dialect0-train-17", "problem": "D07 17 @ 5 # 3 =>", "answer": "37"}`.

    Raises:
        ValueError: the split is unknown.
    """
    if split not in get_args(Split):
        raise ValueError(f"split of toy must be {', '.join(get_args(Split))}, or one with a slice, [:8]; got {split!r}")
    lines = (_FOLDER / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
    rows = enumerate(line.split("\t") for line in lines)
    return [{"id": f"dialect0-{split}-{row}", "problem": text, "answer": answer} for row, (text, answer) in rows]


def policy_dir() -> Path:
    """Return the folder of the installed policy, for `AutoModelForCausalLM` and `AutoTokenizer`."""
    return _FOLDER / "policy"
