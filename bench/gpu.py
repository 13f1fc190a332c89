"""Check and time the kernels and the trainer on a GPU: `python bench/gpu.py PART`.

correctness  losses and log-probabilities against float64; capture, no synchronisation, determinism, compile; the tests
counts       exact counts under contention; time of a step's advantages, of counting and of growth
speed        products, row passes, and the loss compared with its baselines, with its peak memory and its launches
variants     the loss with other chunks, sums, grids and row kernels: which choices of the code pay
trainer      ten training steps with their synchronisations, and a resumed run
all          one after another

Every part takes less than ten minutes on one H200 and runs from a checkout, without an installation: it needs torch,
triton, numpy and safetensors, and `trainer` needs the packages of `outcome-rl train`. A check that fails does not stop
the others. The output ends with the goals, expected and seen; a JSON file for each part holds all figures with device,
versions and commit. `--dry` runs everything in small on the CPU, interpreted, to see that this script works: its
figures mean nothing.
"""

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("correctness", "counts", "speed", "variants", "trainer")


def main() -> None:
    """Run the parts, write a record of each, and exit with 1 if a check failed or a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "all"])
    parser.add_argument("--dry", action="store_true", help="in small, on the CPU; needs --out")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the records (bench/results)")
    options = parser.parse_args()
    if options.dry and options.out is None:
        parser.error("--dry needs --out: its figures are no records of bench/results")
    sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]
    if options.dry:
        os.environ |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}  # read when torch and triton are imported
    from bench.gpu_parts.report import DRY, Report
    from outcome_rl.bench.result_file import commit, write_result

    if options.dry != DRY:
        parser.error("this PyTorch finds no GPU; --dry runs everything in small on the CPU")
    print(f"commit {commit()}", flush=True)  # it raises now rather than after the first part
    failed = []
    for part in PARTS if options.part == "all" else [options.part]:
        print(f"=== {part}", flush=True)
        report = Report()
        for check in import_module(f"bench.gpu_parts.{part}").CHECKS:
            report.run(check)
        report.print_goals()
        figures = {"goals": report.goals, "checks": report.checks}
        folder = options.out or ROOT / "bench" / "results"
        print(f"wrote {write_result(folder, f'gpu-{part}', {'dry': DRY}, figures)}")
        failed += report.failed
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
