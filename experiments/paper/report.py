"""The report, from the records alone: Markdown with figures in files, and the same page as one HTML file."""

import base64
import re
from pathlib import Path
from typing import Any

from experiments.judged import claims_table, judge_rows, summary
from experiments.lab.verdicts import per_unit
from experiments.paper.claims import differences_by_unit
from experiments.paper.figures import draw_figures
from experiments.paper.measures import Results, cell_of
from experiments.paper.plan import PLANS, POLICIES
from experiments.paper.tables import CELL_SECTIONS, ablation_table, number, overview_table

TITLE = "Outcome-based exploration in miniature"
RULE = """\
The verdicts follow `experiments/lab/verdicts.py`: paired differences, averaged over the seeds of each rule table and
base policy, a 95 % t interval over these, and Holm's correction over all rows. A claim is judged on the splits of which
the paper makes it, never on a mixture. *No difference*: smaller than the margin of its measure. A row without a value
needs a method, a split or an unsolved question that the plan lacks. The paper's own effects are those of its tables,
± one standard error over its seeds."""
OVERVIEW = """\
Difference from GRPO on the same rule table, base policy, split and seed: mean ± standard error."""
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 68rem; margin: 0 auto; padding: 1.5rem; }
h1, h2, h3 { line-height: 1.2; margin-top: 2.2rem; }
table { border-collapse: collapse; font-size: .86rem; display: block; overflow-x: auto; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { background: var(--soft); }
td:not(:first-child) { font-variant-numeric: tabular-nums; }
img { max-width: 100%; background: #fff; border-radius: 6px; }
code { background: var(--soft); padding: .1em .3em; border-radius: 4px; }
"""


def write_report(records: dict[str, Any], folder: Path) -> list[Path]:
    """Write `report.md`, its figures and `report.html` into a folder, and return the two pages."""
    results = Results(records)
    figures = draw_figures(results, folder)
    markdown = compose(results, figures)
    page, html = folder / "report.md", folder / "report.html"
    page.write_text(markdown, encoding="utf-8")
    html.write_text(_as_html(markdown, folder), encoding="utf-8")
    return [page, html]


def compose(results: Results, figures: dict[str, dict[str, Path]]) -> str:
    """Return the page in Markdown."""
    plan = results.records["plan"]
    rows = judge_rows(lambda row: per_unit(differences_by_unit(results, row)))
    parts = [f"# {TITLE}", _preamble(results.records), "## Claims", RULE, summary(rows), claims_table(rows)]
    parts += ["## Methods compared with GRPO", OVERVIEW]
    for split in plan["splits"]:
        parts += [f"### {split.capitalize()} questions", overview_table(results, split)]
    for cell in results.cells:
        questions = next(entry["questions"] for entry in results.records["cells"] if cell_of(entry) == cell)
        parts.append(
            f"## {cell.split.capitalize()} questions, {cell.policy} base policy, rule table {cell.instance}\n\n"
            f"{questions} training questions, {number(len(plan['seeds']), 'seed')}."
        )
        for caption, path in figures[cell.name].items():
            parts.append(f"![{caption}]({path.name})\n\n{caption}")
        for heading, section in CELL_SECTIONS.items():
            parts += [f"### {heading}", section(results, cell)]
    ablations = ablation_table(results)
    parts += [
        "## Ablations",
        ablations or f"The plan `{plan['name']}` has none; `python -m experiments.paper full` does.",
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _preamble(records: dict[str, Any]) -> str:
    plan, environment = records["plan"], records["environment"]
    policies = ", ".join(f"{name} ({POLICIES[name]} steps of imitation)" for name in plan["policies"])
    seeds = len(plan["seeds"])
    names = ", ".join(records["left_out"])
    left_out = f"**Not finished, and left out** (rule table, base policy, split): {names}.\n\n" if names else ""
    last = plan.get("final_evaluations", 1)
    final = ' "Last" and "final" are the last checkpoint'
    planned = f"the plan had fixed the mean of the last {last} evaluations (experiments/claims.md)"
    final += f"; {planned}." if last > 1 else "."
    part = "" if seeds == len(PLANS[plan["name"]].seeds) else f" --seeds {seeds}"
    return f"""\
Song, Kempe, Munos, *Outcome-based Exploration for LLM Reasoning* (arXiv:2509.06941), on dialect arithmetic with a
policy of half a million parameters: `python -m experiments.paper {plan["name"]}{part}`.
{len(records["runs"])} trainings of {plan["steps"]} steps with {plan["batch"]} questions x {plan["n"]} samples;
rule tables {_list(plan["instances"])}; base policies: {policies}; seeds {_list(plan["seeds"])}.
Test: {plan["test_questions"]} questions with {plan["test_samples"]} samples each, the same for all.

The settings are in `experiments/paper/plan.py` and were fixed before the runs. "Best" is the checkpoint that the
{plan["validation_questions"]} validation questions select.{final}
Hard questions are those that the base policy fails in {plan["hard_samples"]} samples. The base policy is compared with
RL at the same number of samples, newly drawn.

{left_out}Made with commit {environment["commit"]}, {environment["date"]}, {"; ".join(environment["devices"])}."""


def _list(values: list[int]) -> str:
    return ", ".join(map(str, values))


def _as_html(markdown: str, folder: Path) -> str:
    """Return the page with its figures inside it."""
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark").enable("table").render(markdown)

    def inline(match: re.Match[str]) -> str:
        data = base64.b64encode((folder / match[1]).read_bytes()).decode()
        return f'src="data:image/png;base64,{data}"'

    body = re.sub(r'src="([^":]+\.png)"', inline, body)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{TITLE}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head>\n<body>\n{body}</body></html>\n"
    )
