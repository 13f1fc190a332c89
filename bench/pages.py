"""Write the tables and plots of the documentation from the committed result files: `python -m bench.pages`.

A table stands between two marks that name it. Nothing is measured.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import decoding, divergence, gaps, loss_page, outcomes, rules, sampled, step, vllm_step
from bench.gpu_parts import page as gpu_page
from bench.result_file import measured_on
from bench.step import OURS
from experiments import levels
from experiments.bandits import sweeps
from experiments.negative import study as negative
from experiments.paper import decided, frontier, grid, hard_questions, methods
from experiments.paper.measures import Results
from experiments.paper.plan import FORGETTING, HARD_ESTIMATORS
from experiments.sampled import report as sampled_study
from experiments.smollm2 import countdown, default, hard
from experiments.smollm2 import record as smollm2
from experiments.smollm2.study import draw_training, means_table, rows_table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
BONUSES = ROOT / "experiments" / "paper" / "results" / "2026-11-20" / "frontier.json"
SMOLLM2 = smollm2.RESULTS / f"{smollm2.NAME}.json"
BANDITS = ROOT / "experiments" / "bandits" / "results" / "bandits.json"


def main() -> None:
    """Rewrite every page and plot."""
    for path, text in pages().items():
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")
    for name, record in loss_page.read_records(RESULTS).items():
        loss_page.plot(record, ROOT / "docs" / f"{name}.png")
    medium = grid.results()
    decided.draw_curves(medium, ROOT / "docs" / "exploration.png")
    decided.draw(levels.results(HARD_ESTIMATORS.name), medium, ROOT / "docs" / "methods.png")
    levels.draw(levels.read_levels(), ROOT / "docs" / "agreement.png")
    if medium.cells:
        grid.draw(read(grid.PREDICTIONS), medium, ROOT / "docs" / "predictions.png")
    smollm2.draw(read(SMOLLM2)["figures"], ROOT / "docs" / "smollm2.png")
    draw_training(hard.STUDY, ROOT / "docs" / "smollm2-hard.png")


def pages() -> dict[Path, str]:
    """Return the text of every page with its tables brought up to date."""
    predictions, medium = read(grid.PREDICTIONS), grid.results()
    hard_toy = levels.results(HARD_ESTIMATORS.name)
    losses = loss_page.read_records(RESULTS)
    short, long = loss_page.blocks(losses)
    tables = {
        "bench/results/losses.md": {
            "loss": short,
            "sampled": sampled.table([read(RESULTS / f"sampled-cpu-{threads}.json") for threads in (1, 2)]),
            "gpu": gpu_page.predictions_table(read(RESULTS / "gpu-speed.json"), losses[loss_page.WHOLE]),
            "nats": gpu_page.sampled_table(loss_page.with_section(losses, loss_page.OF_NATS[0.46])),
            "divergences": "\n".join(
                divergence.table(read(path)) for path in sorted(RESULTS.glob("divergence-*.json"))
            ),
            "gaps": measured_block(gaps.table, read(RESULTS / "gaps-cpu.json")),
        },
        "docs/counts.md": {"gpu": gpu_page.counts_table(read(RESULTS / "gpu-counts.json"))},
        "README.md": {
            "effects": decided.readme_table(hard_toy, medium, predictions),
            "losses": loss_page.readme_table(losses),
            "answers": answers_line(),
        },
        "docs/drop-ins.md": {"peers": peers_block(RESULTS)},
        "docs/results.md": {"answers": answers_line()},
        "bench/results/steps.md": {
            "step": step_block(read(RESULTS / "step-cpu.json")),
            "step-smollm2": step_block(read(RESULTS / "step-cpu-smollm2.json")),
            "step-gpu": step_block(read(RESULTS / "step-cuda-toy.json")),
            "decoding": measured_block(decoding.table, read(RESULTS / "decoding-cpu.json")),
            "avx2": avx2_block(RESULTS / "avx2"),
        },
        "bench/results/README.md": {
            "loss": long,
            "vllm-step": measured_block(vllm_step.table, read(RESULTS / "vllm-step.json")),
        },
        "experiments/claims.md": claims_blocks(),
        "experiments/paper/README.md": {
            "bonuses": frontier.metrics_table(Results(read(BONUSES))),
            "decided-count": levels.decided_count(),
            "decided": levels.decided_table("medium"),
            "decided-hard": levels.decided_table("hard"),
            "unsolved": levels.unsolved_table(),
            "sampling": levels.sampling_table(),
            "hard-estimators": hard_questions.verdict_table(hard_toy, hard_questions.ROWS[HARD_ESTIMATORS.name]),
            "forgetting": decided.forgetting_table(hard_toy),
            "without-forgetting": hard_questions.verdict_table(
                levels.results(FORGETTING.name), hard_questions.ROWS[FORGETTING.name]
            ),
            "mixing": decided.mixing_table(levels.results(FORGETTING.name)),
            "grid": grid.grid_table(predictions, medium),
            "grid-methods": grid.methods_table(predictions, medium),
            "methods": methods_block(read(methods.RESULTS / f"{methods.NAME}.json")),
        },
        "docs/methods.md": {
            "settings": decided.settings_table(hard_toy, medium, predictions),
        },
        "experiments/bandits/README.md": {"bandits": f"{sweeps.table(read(BANDITS)['figures'])}\n"},
        "experiments/smollm2/README.md": {
            "smollm2": smollm2_block(read(SMOLLM2)),
            "hard": rows_table(hard.STUDY) + means_table(hard.STUDY),
            "countdown": rows_table(countdown.STUDY) + means_table(countdown.STUDY),
            "default": rows_table(default.STUDY) + means_table(default.STUDY),
        },
        "experiments/negative/README.md": {"rows": negative.rows_table()},
        "experiments/sampled/README.md": {"rows": sampled_study.rows_table()},
        "docs/outcomes.md": {"spellings": f"{rules.spelling_table()}\n"},
        "bench/results/outcomes.md": {
            name: f"{table}\n" for name, table in outcomes.tables(read(RESULTS / "outcomes.json")["figures"]).items()
        }
        | {
            "generated": generated_block(read(RESULTS / "outcome-pairs.json")),
            "rules": f"{rules.table(read(RESULTS / 'outcome-rules.json')['figures'])}\n",
        },
    }
    found = {}
    for page, blocks in tables.items():
        text = (ROOT / page).read_text()
        for name, block in blocks.items():
            text = with_block(text, name, block)
        found[ROOT / page] = text
    return found


def answers_line() -> str:
    """Return the sentence on answers."""
    figures = read(RESULTS / "outcomes.json")["figures"]
    agreement = {name: f"{row['agreement']:.1%}" for name, row in figures["pairs"].items()}
    speeds = sorted(row["outcome_rl"]["of_math_verify"] for row in figures["throughput"].values())
    return (
        f"Answers: {speeds[0]:.0f} to {speeds[-1]:.0f} times as fast as math-verify on one CPU core, and "
        f"{agreement['outcome_rl']} of labelled pairs right, math-verify {agreement['math-verify']}.\n"
    )


def claims_blocks() -> dict[str, str]:
    """Return the tables of the page of claims."""
    found = levels.read_levels()
    return {
        "decided-count": levels.decided_count(),
        "contradictions": levels.contradictions_table(found),
        "agreement": levels.agreement_table(found),
        "unsolved": levels.unsolved_table(),
        "claims": levels.claims_table(found),
    }


def step_block(record: dict[str, Any]) -> str:
    """Return the table of the whole-step benchmark, and where it was measured."""
    return f"{step.table(record['figures'])}\n{measured_on(record)}\n"


def measured_block(table: Callable[[dict[str, Any]], str], record: dict[str, Any]) -> str:
    """Return the table of a benchmark, and where it was measured."""
    where = f"{record['devices'][-1]}; {record['date']}; commit {record['commit']}"
    return f"{table(record['figures'])}\nMeasured on {where}.\n"


def avx2_block(folder: Path) -> str:
    """Return the main measurements on a processor without bfloat16 products: ours, and the others' times over ours."""
    loss, toy, smollm2_step, sampling = (
        read(folder / f"{name}.json")["figures"]
        for name in ("loss-cpu-small-float32", "step-cpu-toy", "step-cpu-smollm2", "decoding-cpu")
    )
    section = loss["sections"]["small, float32"]
    rows = [row for row in section["rows"] if row["times"] and row["carries_coefficients"]]
    loss_times = {"three matrix products": section["floors"]} | {row["name"]: row["times"] for row in rows}
    lines = ["| | outcome_rl, ms | others, times as long |", "|---|---:|---|"]
    for label, rows_of, times in (
        ("policy loss, float32, forward and backward", loss_times, "forward_backward"),
        ("step of the toy policy", toy["toy"], "step"),
        ("step of SmolLM2, one thread", smollm2_step["smollm2"], "step"),
        ("sampling with SmolLM2, one thread", sampling, "times"),
    ):
        found = {name: row[times]["median_ms"] for name, row in rows_of.items()}
        others = [f"{name} {ms / found[OURS]:.2f}" for name, ms in found.items() if not name.startswith(OURS)]
        lines.append(f"| {label} | {found[OURS]:,.0f} | {'; '.join(others)} |")
    where = read(folder / "step-cpu-toy.json")
    return "\n".join([*lines, f"\nMeasured on {where['devices'][-1]}; {where['date']}.\n"])


def methods_block(record: dict[str, Any]) -> str:
    """Return the table of methods, and where they were trained."""
    plan, where = record["config"], f"{record['devices'][-1]}; {record['date']}; commit {record['commit']}"
    return (
        f"{methods.methods_table(record)}\nMeans over {len(record['figures']['none'])} rule tables after "
        f"{plan['steps']} steps of {plan['batch']} questions with {plan['n']} samples. Trained on {where}.\n"
    )


def smollm2_block(record: dict[str, Any]) -> str:
    """Return the results of the runs on SmolLM2, and where they ran."""
    figures = record["figures"]
    where = f"{record['devices'][-1]}; one thread per run; {record['date']}; commit {record['commit']}"
    return f"{smollm2.results_table(figures)}\n{smollm2.verdicts_table(figures)}\nTrained on {where}.\n"


def generated_block(record: dict[str, Any]) -> str:
    """Return the table of the generated pairs of answers, by kind."""
    lines = ["| kind | equal pairs | with two keys | unequal pairs | with one key |", "|---|---|---|---|---|"]
    totals = {name: sum(row[name] for row in record["kinds"].values()) for name in record["kinds"]["numbers"]}
    for kind, row in [*record["kinds"].items(), ("all", totals)]:
        missed = f"{row['missed']:,} ({row['missed'] / row['equal']:.2%})"
        lines.append(f"| {kind} | {row['equal']:,} | {missed} | {row['unequal']:,} | {row['wrong']} |")
    return (
        "\n".join(lines)
        + f"\n\nRule `{record['rule']}`; seed {record['seed']}, {record['pairs']:,} pairs of each label.\n"
    )


def peers_block(results: Path) -> str:
    """Return a table of other libraries' tests on ours, with the reason of every refusal and failure."""
    lines = ["| tests of | passed | refused | failed | why |", "|---|---:|---:|---:|---|"]
    for path in sorted(results.glob("peers-*.json")):
        figures = read(path)["figures"]
        name, one = path.stem.removeprefix("peers-"), figures[[*figures][-1]]
        kinds = {re.split(" at | for token_loss=|; ", text.partition(": ")[2])[0] for text in one.get("refusals", {})}
        why = "; ".join([*sorted(kinds), *one.get("failures", one.get("others", {}))])
        refused, passed = one.get("refused", 0), one["passed"]
        lines.append(f"| `{name}` | {passed} | {refused} | {one['of'] - passed - refused} | {why} |")
    return "\n".join(lines) + "\n"


def read(path: Path) -> dict[str, Any]:
    """Return a committed record."""
    record: dict[str, Any] = json.loads(path.read_text())
    return record


def with_block(text: str, name: str, block: str) -> str:
    """Return the page with `block` between the marks of `name`.

    Raises:
        ValueError: the page lacks the marks.
    """
    begin, end = f"<!-- {name}: written by make pages -->", f"<!-- end of {name} -->"
    head, _, rest = text.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise ValueError(f"the page lacks the marks {begin} and {end}")
    return f"{head}{begin}\n{block}{end}{tail}"


if __name__ == "__main__":
    main()
