"""The commands of the driver: train, eval, export, report, hard-set. `outcome_rl.cli` registers them.

They import what they need when they run, so that `outcome-rl --help` answers at once.
"""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from outcome_rl.grpo.config.presets import preset_names
from outcome_rl.terminal import only_our_progress, print_reports, show_progress

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Settings, such as rollout.n=16; `outcome-rl train --settings` lists them.",
        show_default=False,
    ),
]
Config = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="FILE|PRESET", help=f"YAML file, or one of the presets: {', '.join(preset_names())}."
    ),
]
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A run (its newest checkpoint), a checkpoint, a Hugging Face folder or hub name, or `toy`.",
        show_default=False,
    ),
]
Data = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="FILE", help="Problems, as in data.test_files; may be given several times."),
]


def train(
    overrides: Overrides = None,
    config: Config = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved settings, memory and steps, and stop.")
    ] = False,
    settings_only: Annotated[
        bool,
        typer.Option(
            "--settings", help="Print every setting with default, range and help, as a file for --config, and stop."
        ),
    ] = False,
) -> None:
    """Train a policy with outcome-based exploration; continues where an earlier call with the same name stopped.

    `outcome-rl train --config toy` trains the tiny policy of this package in minutes on a CPU.
    """
    from outcome_rl.grpo.config.load import load_config, settings_yaml, to_yaml
    from outcome_rl.grpo.distributed import is_rank_zero

    if settings_only:
        print(settings_yaml(), end="")
        return
    settings = load_config(config, overrides or [])
    if dry_run:
        from outcome_rl.grpo.dry_run import describe

        if not is_rank_zero():
            return
        print(to_yaml(settings), end="")
        for line in describe(settings):
            print(f"# {line}")  # what is printed stays a file that --config reads
        return
    only_our_progress()
    from outcome_rl.grpo.run.run_lock import Interrupted
    from outcome_rl.grpo.trainer import train as run

    try:
        run(settings)
    except Interrupted as interruption:
        if is_rank_zero():
            print(f"{interruption}; the same command continues it", file=sys.stderr)
        raise typer.Exit(128 + interruption.signum) from interruption


def evaluate(
    model: Model,
    overrides: Overrides = None,
    data: Data = None,
    config: Config = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder of the results.", show_default="evals/MODEL")
    ] = None,
) -> None:
    """Sample a saved model on problems and report pass@k, best@k and diff@k.

    A checkpoint is sampled by the settings that it was trained with, on the test data of its run where --data names no
    other. `rollout.val_kwargs.n` samples a problem go to DIR/<data set>.jsonl, which `outcome-rl analyze` reads, and
    the figures to DIR/summary.json. A call that was stopped is continued by the same call.
    """
    from outcome_rl.analyze import Report, analyze_file
    from outcome_rl.files import write_json
    from outcome_rl.grpo.run.evaluation import macro_average
    from outcome_rl.grpo.sample import open_sampler, sampling_config

    only_our_progress()
    settings = sampling_config(model, data or [], config, overrides or [])
    out = out or Path("evals") / Path(model).name
    reports: dict[str, Report] = {}
    groups = [[source] for source in dict.fromkeys(settings.data.test_files)]
    with open_sampler(settings, groups, out, with_text=True) as (sampler, sets):
        for dataset, prompts in sets:
            path = out / f"{dataset.name}.jsonl"
            with show_progress(dataset.name, "questions") as progress:
                sampler.fill(path, prompts, settings.rollout.val_kwargs, dataset.name, progress)
            reports[path.name] = analyze_file(
                path, equivalence=settings.exploration.equivalence, workers=settings.exploration.workers
            )
    if len(reports) > 1:
        unscored = {name: why for report in reports.values() for name, why in report["unscored_questions"].items()}
        doubtful = {name: why for report in reports.values() for name, why in report["doubtful_golds"].items()}
        reports["average over the data sets"] = Report(
            **macro_average(list(reports.values())),
            outcome_rule=next(iter(reports.values()))["outcome_rule"],
            unresolved=sum(report["unresolved"] for report in reports.values()),
            unscored_questions=unscored,
            doubtful_golds=doubtful,
        )
    print_reports(reports)
    write_json(out / "summary.json", {"model": model, "reports": reports})
    print(f"{out}/ holds the samples and summary.json")


def export(
    model: Model,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A folder that does not exist yet.", show_default=False)],
    dtype: Annotated[
        Literal["bfloat16", "float16", "float32"], typer.Option(help="Of the weights; checkpoints are float32.")
    ] = "bfloat16",
) -> None:
    """Write a checkpoint as a Hugging Face folder, with tokenizer, for transformers and vLLM."""
    from outcome_rl.grpo.model.export import export_model

    only_our_progress()
    print(f"{out}/ holds {export_model(model, out, dtype):,} parameters in {dtype}")


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN_DIR...", help="Folders of runs.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The page.", show_default="RUN_DIR/report.html, or ./report.html"),
    ] = None,
) -> None:
    """Write one HTML page of a run, or of several over one another, finished or not."""
    from outcome_rl.grpo.run.report import write_report

    print(write_report(runs, out or (runs[0] if len(runs) == 1 else Path()) / "report.html"))


def hard_set(
    model: Model,
    overrides: Overrides = None,
    data: Data = None,
    config: Config = None,
    k: Annotated[int, typer.Option("--k", min=1, help="Samples that a hard problem fails.")] = 512,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder of the results.", show_default="hard-set/MODEL")
    ] = None,
) -> None:
    """Find the problems that a model fails in every one of k samples: pass@k = 0.

    DIR/hard.jsonl holds them, to be named as data.train_files, and DIR/statistics.jsonl what the samples of every
    problem showed. A call that was stopped is continued by the same call.
    """
    from outcome_rl.files import write_rows
    from outcome_rl.grpo.hard_set import find_hard
    from outcome_rl.grpo.sample import open_sampler, sampling_config
    from outcome_rl.outcomes.matcher import OutcomeMatcher

    only_our_progress()
    settings = sampling_config(model, data or [], config, overrides or [])
    out = out or Path("hard-set") / Path(model).name
    outcomes = settings.exploration
    with (
        open_sampler(settings, [settings.data.test_files], out, with_text=False, k=k) as (sampler, sets),
        OutcomeMatcher(outcomes.equivalence, outcomes.workers, outcomes.timeout_s) as matcher,
    ):
        ((_, prompts),) = sets
        statistics, hard = find_hard(sampler, matcher, prompts, k, out, show_progress)
    problems = [problem._asdict() for problem in prompts.problems if problem.id in set(hard)]
    for name, rows in (("statistics", [one._asdict() for one in statistics]), ("hard", problems)):
        write_rows(out / f"{name}.jsonl", rows)
    drawn = sum(one.n for one in statistics)
    print(
        f"{len(hard)} of {len(statistics)} problems have pass@{k} = 0, by {drawn:,} samples: {out}/hard.jsonl\n"
        f"what the samples of each problem showed: {out}/statistics.jsonl"
    )
