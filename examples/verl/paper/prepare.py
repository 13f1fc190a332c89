"""Write the data of the presets `paper/...` of `outcome-rl train` as verl reads them, into data/ of this folder.

The hard data are written where the preset `paper/llama-3.1-8b-instruct-hard` finds its files: run its two commands in
the working directory first.

pip install '/path/to/outcome_rl[train]'
python prepare.py
"""

from pathlib import Path
from typing import Any

from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import DataConfig
from outcome_rl.grpo.data.problems import load_problems

FOLDER = Path(__file__).resolve().parent / "data"


def rows(sources: list[str], data: DataConfig, *, training: bool) -> list[dict[str, Any]]:
    """Return problems as rows of verl."""
    found = load_problems(sources, data, training=training)
    return [
        {
            "data_source": found.name,
            "prompt": [{"role": "user", "content": data.prompt_template.replace("{problem}", problem.problem)}],
            "reward_model": {"style": "rule", "ground_truth": problem.answer},
            "extra_info": {"index": problem.id},
        }
        for problem in found.problems
    ]


def main() -> None:
    from datasets import Dataset

    FOLDER.mkdir(exist_ok=True)
    for name in ("easy", "medium", "hard"):
        data = load_config(f"paper/llama-3.1-8b-instruct-{name}", []).data
        if name == "hard" and not all(Path(source).exists() for source in data.train_files):
            print(f"no hard.parquet: {' and '.join(data.train_files)} are missing; see the preset")
            continue
        found = rows(data.train_files, data, training=True)
        Dataset.from_list(found).to_parquet(FOLDER / f"{name}.parquet")
    for source in data.val_files:
        name = source.partition("@")[0].rpartition("/")[2].lower()
        found = rows([source], data, training=False)
        Dataset.from_list(found).to_parquet(FOLDER / f"{name}.parquet")


if __name__ == "__main__":
    main()
