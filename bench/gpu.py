"""Check and time the kernels and the trainer on a GPU: `python -m bench.gpu PART --out DIR`.

smoke        every kernel once, half a minute that tells whether anything runs; once more under compute-sanitizer
correctness  losses, log-probabilities and supports against float64, and again bit for bit
tests        the kernels' tests for a GPU
speed        what the losses are made of: launches, row passes and products; the loss over supports; given ids
counts       exact counts under contention; the time of counting by load, of a step's advantages and of growth
variants     the loss with other chunks, sums, grids and row kernels, sampling by other programs: which choices pay
trainer      ten training steps with their synchronisations, and a resumed run; updates packed and padded
all          one after another

Each check is a process of its own with a time limit, so that an illegal access or a hang ends only that check. The
result file `gpu-PART.json` is written after every check: figures, goals (expected and seen), errors, clocks and power,
device, versions and commit. No part takes more than ten minutes. It runs from a checkout, without an installation: it
needs torch, triton, numpy and safetensors; `trainer` needs the packages of `outcome-rl train`. Whatever else is absent
(a native library, git) is named in the result and left out. `python -m bench.loss --device cuda` then compares the loss
with other libraries, which bench/gpu-wheels.txt lists.

`--dry` runs everything in small on the CPU, interpreted, to see that this script works: its figures mean nothing.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TERMINATED = "killed, because the script was terminated"
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from bench.gpu_parts.clocks import Clocks  # noqa: E402
from bench.result_file import provenance  # noqa: E402
from outcome_rl.files.atomic import write_json  # noqa: E402

# The checks of each part with the seconds after which they are killed; together at most 570 of a part.
PARTS = {
    "smoke": {"every_kernel": 100, "every_kernel_sanitized": 300},
    "correctness": {
        "losses_of_the_goal": 120,
        "supports": 60,
        "bfloat16_losses": 120,
        "float32_losses": 120,
        "float16_losses": 120,
    },
    "tests": {"kernel_tests": 560},
    "speed": {
        "launches": 80,
        "time_of_ids": 60,
        "time_of_supports": 80,
        "row_passes": 50,
        "products": 40,
    },
    "counts": {
        "counts_are_exact": 90,
        "counts_under_contention": 90,
        "counting_by_load": 90,
        "time_of_a_step": 120,
        "time_of_counting": 170,
    },
    "variants": {"sampling": 90, "variants": 400},
    "trainer": {"training_steps": 150, "packing": 200},
}


def main() -> None:
    """Run the parts, write a result file of each, and exit with 1 if a check failed or a goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=[*PARTS, "all"])
    parser.add_argument("--dry", action="store_true", help="in small, on the CPU; needs --out")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the result files (bench/results)")
    options = parser.parse_args()
    if options.dry and options.out is None:
        parser.error("--dry needs --out: its figures do not belong into bench/results")
    if not options.dry and not _has_gpu():
        parser.error("this PyTorch finds no GPU; --dry runs everything in small on the CPU")
    folder = options.out or ROOT / "bench" / "results"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # as `timeout` sends it
    failed = []
    for part in PARTS if options.part == "all" else [options.part]:
        checks = {f"bench.gpu_parts.{part}:{name}": limit for name, limit in PARTS[part].items()}
        failed += run_part(part, checks, folder, dry=options.dry)
    sys.exit(bool(failed))


def run_part(part: str, checks: Mapping[str, float], folder: Path, *, dry: bool) -> list[str]:
    """Run checks in turn, and write `gpu-PART.json` after each.

    Args:
        part: name of the result file.
        checks: `module:function` of each check, and the seconds after which it is killed.
        folder: of the result file.
        dry: on the CPU, in small.

    Returns:
        Names of the checks that failed and of the goals that were missed.
    """
    print(f"=== {part}", flush=True)
    path = folder / f"gpu-{part}.json"
    figures: dict[str, Any] = {"goals": [], "checks": {}}
    result: dict[str, Any] = {"config": {"dry": dry}, "figures": figures, **provenance(devices=[])}
    for check, limit in checks.items():
        name = check.partition(":")[2]
        print(f"... {name}", flush=True)
        found = run_check(check, limit, dry=dry)
        result["devices"] = found.pop("devices", None) or result["devices"]
        figures["goals"] += found.pop("goals", [])
        figures["checks"][name] = found
        print(f"{'ok  ' if found['ok'] else 'FAIL'} {name} {found.get('error', '')}", flush=True)
        write_json(path, result)
        if found.get("error") == TERMINATED:
            sys.exit(TERMINATED)
    failed = _print_goals(figures)
    print(f"wrote {path}", flush=True)
    return failed


def run_check(check: str, limit: float, *, dry: bool) -> dict[str, Any]:
    """Run a check in a process of its own; return what it found until it ended, or was killed at its limit."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": _path_of_modules()}
    if dry:
        environment |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "check.json")
        command = [sys.executable, "-m", "bench.gpu_parts.check", check, str(written)]
        # A group of its own: what the check starts is killed with it.
        child = subprocess.Popen(command, cwd=ROOT, env=environment, process_group=0)
        end, clocks = None, Clocks()
        try:
            with clocks:
                child.wait(limit)
        except subprocess.TimeoutExpired:
            end = f"killed at its limit of {limit:g} s"
        except SystemExit:
            end = TERMINATED
        finally:
            _kill_group(child)
        found: dict[str, Any] = json.loads(written.read_text()) if written.exists() else {}
    if end is None and "ok" not in found:
        end = f"ended with exit status {child.returncode} before it was done"
    if end is not None:
        found |= {"ok": False, "error": end}
    return found | {"clocks": clocks.summary()}


def _kill_group(child: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):  # all of it has ended
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _path_of_modules() -> str:
    paths = [str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(filter(None, paths))


def _has_gpu() -> bool:
    """Ask in another process: this one must not hold the GPU that its children use."""
    command = [sys.executable, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"]
    return subprocess.run(command).returncode == 0


def _print_goals(figures: dict[str, Any]) -> list[str]:
    words = {None: "not judged", True: "met", False: "MISSED"}
    for goal in figures["goals"]:
        seen = "nothing" if goal["seen"] is None else f"{goal['seen']:.4g} {goal['unit']}"
        print(f"{words[goal['met']]:10} {goal['goal']}: expected <= {goal['expected']} {goal['unit']}, seen {seen}")
    failed = [name for name, found in figures["checks"].items() if not found["ok"]]
    failed += [goal["goal"] for goal in figures["goals"] if goal["met"] is False]
    print(f"{len(figures['checks'])} checks; failed or missed: {', '.join(failed) or 'none'}")
    return failed


if __name__ == "__main__":
    main()
