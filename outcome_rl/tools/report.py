"""HTML report of one or more runs: base against trained policy, curves, unsolved questions, samples, settings.

The page is made only from the files of the runs and loads nothing. Jinja escapes every text, because models may write
anything.
"""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console

from outcome_rl.exploration.config import method_words
from outcome_rl.files.atomic import write_text
from outcome_rl.grpo.run.checkpoint import CHECKPOINTS, latest_checkpoint
from outcome_rl.terminal.tables import counted, print_table
from outcome_rl.terminal.text import printable
from outcome_rl.tools.runs import Comparison, Run, read_run
from outcome_rl.tools.sample_table import samples_table
from outcome_rl.tools.unsolved import find_unsolved
from outcome_rl.toy.task import ABOUT
from outcome_rl.version import __version__

TEMPLATE = Path(__file__).with_name("report.html.j2")


def print_summary(folder: Path) -> None:
    """Write the report of a run into its folder, and print base against trained policy and where the files are."""
    run = read_run(folder)
    if last := [row for row in run.samples if row["step"] == run.samples[-1]["step"]]:
        Console(highlight=False, emoji=False).print(samples_table(last))
        if "toy:train" in run.config["data"]["train_files"]:
            print(ABOUT)
    for name, base, trained in run.comparisons:
        print(f"{printable(name)}: {counted(trained['n_questions'], 'question')}, base against step {trained['step']}")
        rows = [
            [f"{label}{k}", *_change(base[metric][k], trained[metric][k], digits)]
            for metric, label, digits in (("pass_at_k", "pass@", ".3f"), ("diff_at_k", "diff@", ".2f"))
            for k in trained[metric]
        ]
        rows.append(["no answer", *_change(base["no_answer_rate"], trained["no_answer_rate"], ".1%")])
        print_table(["", "base", "trained", "change"], rows, numbers=True)
    report = write_report([folder], folder / "report.html")
    newest = latest_checkpoint(folder / CHECKPOINTS)
    where = (
        f"{folder}/ holds config.yaml, metrics.jsonl, evaluations.jsonl, samples.jsonl, {report.name}, and the model "
        f"in {newest}/model"
    )
    print(printable(where))
    for name, (step, value) in run.best.items():
        print(f"best {name} on validation: {value:.3f}, in global_step_{step}")


def _change(base: float, trained: float, form: str) -> list[str]:
    return [f"{base:{form}}", f"{trained:{form}}", f"{trained - base:+z{form}}"]


def write_report(folders: Sequence[Path], out: Path) -> Path:
    """Write the page of the runs in `folders` to `out`; its charts show the runs together.

    Raises:
        ValueError: a folder holds no run.
    """
    from jinja2 import Environment, StrictUndefined

    from outcome_rl.tools.charts import PALETTE

    runs = [read_run(folder) for folder in folders]
    if len({run.name for run in runs}) < len(runs):
        runs = [run._replace(name=str(folder)) for run, folder in zip(runs, folders, strict=True)]
    numbered = [(number, pair) for number, run in enumerate(runs) for pair in run.comparisons]
    order = list(dict.fromkeys(pair.dataset for _, pair in numbered))
    pairs = sorted(numbered, key=lambda one: order.index(one[1].dataset))
    unsolved = [find_unsolved(folder, run.config) for folder, run in zip(folders, runs, strict=True)]
    template = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    template.filters["counted"] = counted
    template.filters["method"] = _method
    page = template.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        runs=runs,
        colours=[PALETTE[number % len(PALETTE)] for number in range(len(runs))],
        headlines=_headlines(pairs[0][1]) if len(runs) == 1 and pairs else [],
        comparisons=_table(pairs, several=len(runs) > 1),
        sections=_sections(runs, pairs),
        unsolved=[(number, found) for number, found in enumerate(unsolved) if found is not None],
        texts=[{row.get("question_id"): row["question"] for row in run.samples} for run in runs],
        about_toy=ABOUT,
        version=__version__,
    )
    write_text(out, page)
    return out


def _method(exploration: dict[str, Any]) -> str:
    return method_words(exploration.get("adv_estimator", "grpo"), exploration["bonus"], exploration["coef"])


def _shown(value: Any) -> Any:
    """Return a text of a run with its control characters replaced: they would show what follows in another order."""
    return "\t".join(map(printable, value.split("\t"))) if type(value) is str else value


def _headlines(pair: Comparison) -> list[dict[str, Any]]:
    """Choose the headline metrics, with their values for base and trained."""
    largest = max(pair.trained["pass_at_k"], key=int)
    wanted = dict.fromkeys([("pass_at_k", "1"), ("pass_at_k", largest), ("diff_at_k", largest)])
    return [
        {
            "name": f"{metric[:4]}@{k}",
            "base": pair.base[metric][k],
            "trained": pair.trained[metric][k],
            "digits": 3 if metric == "pass_at_k" else 2,
        }
        for metric, k in wanted
    ]


def _table(pairs: Sequence[tuple[int, Comparison]], *, several: bool) -> list[tuple[int, Comparison, list[str]]]:
    """Add to each index of a run and comparison the values of k to show; several runs show two k each."""
    table = []
    for number, pair in pairs:
        ks = [k for k in pair.trained["pass_at_k"] if k in pair.base["pass_at_k"]]
        table.append((number, pair, list(dict.fromkeys([ks[0], ks[-1]])) if several else ks))
    return table


def _sections(runs: Sequence[Run], pairs: Sequence[tuple[int, Comparison]]) -> list[tuple[str, str, dict[str, Any]]]:
    """List heading, note and charts of each section that has charts."""
    from markupsafe import Markup

    from outcome_rl.tools.charts import comparison_charts, evaluation_charts, training_charts

    sections = []
    for dataset, group in groupby(pairs, key=lambda one: one[1].dataset):
        drawn = [(number, pair.base, pair.trained) for number, pair in group]
        note = f"{counted(drawn[0][1]['n_questions'], 'question')}; base dashed, trained solid"
        sections.append((dataset, note, comparison_charts(drawn)))
    for dataset in dict.fromkeys(row["dataset"] for run in runs for row in run.evaluations):
        rows = [[row for row in run.evaluations if row["dataset"] == dataset] for run in runs]
        if max(map(len, rows)) > 2:  # the section above has base and trained
            sections.append((f"{dataset} over training", "", evaluation_charts(rows)))
    sections.append(("Training", "", training_charts([run.metrics for run in runs])))
    return [
        (heading, note, {title: Markup(svg) for title, svg in charts.items()})
        for heading, note, charts in sections
        if charts
    ]
