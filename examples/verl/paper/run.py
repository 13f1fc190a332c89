"""Start one experiment of the paper under verl; words after the seed change settings, `--cfg job` prints them.

python run.py {llama,qwen} {easy,medium,hard} {grpo,ucb,ucb_mean,ucb_con,batch,sampling} SEED [SETTING=VALUE ...]
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXPLORE = "algorithm.outcome_exploration."
MODELS = {
    "llama": ["actor_rollout_ref.model.path=meta-llama/Llama-3.1-8B-Instruct", f"+{EXPLORE}coef=0.1"],  # paper, 2.1, E
    "qwen": [
        "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B",  # paper, 2.1
        f"+{EXPLORE}coef=0.2",  # paper, E
        # A base model, though its tokenizer has a chat template: the prompt as it is.
        "actor_rollout_ref.model.custom_chat_template='{{ messages[0].content }}'",
    ],
}
B0 = {"easy": 1, "medium": 0.5, "hard": 0.5}  # the baseline of UCB-Con: paper, E; on hard data ours
METHODS = {
    "grpo": [f"+{EXPLORE}bonus=none"],
    "ucb": [f"+{EXPLORE}bonus=ucb"],  # paper, 3.1
    "ucb_mean": [f"+{EXPLORE}bonus=ucb_mean"],  # paper, 3.2
    "ucb_con": [f"+{EXPLORE}bonus='ucb_con(b0={{b0}})'"],  # paper, 3.2
    "batch": [f"+{EXPLORE}bonus=batch"],  # paper, 3.3
    "sampling": [f"+{EXPLORE}bonus=none", "actor_rollout_ref.rollout.n=16"],  # paper, 2.2 and figure 2
}
# Plain GRPO has no answer mask, which the paper introduces together with the bonus.
for name in ("grpo", "sampling"):
    METHODS[name].append(f"{EXPLORE}answer_mask_mode=none")


def overrides(model: str, data: str, method: str, seed: int) -> list[str]:
    """Return the settings of one experiment, on top of paper.yaml."""
    name = f"{model}-{data}-{method}-{seed}"
    return [
        *MODELS[model],
        f"data.train_files=data/{data}.parquet",
        *(setting.format(b0=B0[data]) for setting in METHODS[method]),
        f"data.seed={seed}",
        f"actor_rollout_ref.actor.data_loader_seed={seed}",
        f"trainer.experiment_name={name}",
        f"trainer.default_local_dir=checkpoints/{name}",
    ]


def main() -> None:
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    model, data, method, seed, *more = sys.argv[1:]
    os.chdir(HERE)
    command = [sys.executable, "-m", "verl.trainer.main_ppo", "--config-dir", str(HERE), "--config-name", "paper"]
    os.execv(sys.executable, [*command, *overrides(model, data, method, int(seed)), *more])


if __name__ == "__main__":
    main()
