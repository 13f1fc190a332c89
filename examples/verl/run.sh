#!/usr/bin/env bash
# MaxRL with the Batch bonus on GSM8K. Arguments change settings, as in
#   ./run.sh trainer.n_gpus_per_node=8 algorithm.outcome_exploration.coef=0.1
# and --cfg job prints them all without running.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
exec python -m verl.trainer.main_ppo --config-dir "$here" --config-name gsm8k "$@"
