"""The levels side by side: what each says, and how often they agree."""

import json
import statistics

import pytest

from experiments import levels
from experiments.lab.verdicts import estimate
from experiments.levels import Finding, agreement
from experiments.paper import decided, grid
from experiments.paper.measures import final
from experiments.paper.plan import ALL
from outcome_rl import ExplorationConfig
from outcome_rl.grpo.config.load import load_config

LEVELS = levels.read_levels()


def finding(*differences: float, word: str = "seen") -> Finding:
    return Finding(word, "", estimate(differences))


def test_agreement_by_hand() -> None:
    one, two, three = (("", measure, "medium") for measure in ("solved", "answers", "best pass@1"))
    model = {one: finding(0.1, 0.2, 0.3), two: finding(-1, -2, -3), three: finding(0.0, 0.1, -0.1)}
    found = {one: finding(0.15, 0.2, 0.31), two: finding(1, 1.1, 1.2), ("", "late pass@32", "hard"): finding(1, 1, 1)}
    seen = agreement(model, found | {three: finding(0.0, 0.3, -0.2, word="undecided")}, "medium")
    assert (seen.rows, seen.inside, seen.overlap, seen.decided, seen.signs) == (3, 2, 2, 2, 1)
    assert agreement(model, {}, "medium").rows == 0


def test_the_published_column_is_that_of_the_report() -> None:
    report = (levels.MECHANISM / "report.md").read_text()
    for text in (finding.text for finding in LEVELS.published.values()):
        assert text in report


def test_both_studies_of_the_language_model_are_one_family() -> None:
    rows = [row for row in levels.language_model_rows() if row["differences"]]
    assert {row["split"] for row in rows} == {"medium", "hard"}
    smallest = min(row["p"] for row in rows)
    alone = min(estimate(row["differences"]).p(0.0) for row in rows)
    assert smallest == pytest.approx(min(1.0, len(rows) * alone), abs=1e-5)


def test_smollm2_answers_only_what_it_was_asked() -> None:
    measures = {measure for _, measure, _ in LEVELS.smollm2}
    assert measures == {"final pass@1", "final pass@32"}
    assert {finding.estimate.units for finding in LEVELS.smollm2.values()} == {3}


def test_sampling_has_its_two_rows() -> None:
    lines = levels.sampling_table().splitlines()
    assert [line.split(" | ")[1] for line in lines[2:]] == ["solved early", "solved"]
    study = levels.results("sampling")
    assert len(study.cells) == 10
    assert all(len(study.runs(cell, "none@16")) == len(study.runs(cell, "base@16")) == 1 for cell in study.cells)


def test_recommended_settings_are_those_of_the_plans() -> None:
    hard = levels.results("hard-estimators")
    table = decided.settings_table(hard, grid.results(), json.loads(grid.PREDICTIONS.read_text()))
    for (aim, name), line in zip(decided.AIMS.items(), table.splitlines()[2:], strict=False):
        assert line.startswith(f"| {aim} | `{decided.setting(name)}` |")
        config: ExplorationConfig = eval(f"ExplorationConfig({decided.setting(name)})")
        trained = load_config("toy", ALL[name].overrides("hard")).exploration
        assert (config.adv_estimator, config.bonus) == (trained.adv_estimator, trained.bonus)
        assert config.bonus == "none" or config.coef == trained.coef
    (line,) = [line for line in decided.forgetting_table(hard).splitlines() if line.startswith("| GRPO |")]
    finals = [decided.values(hard, "none", final(k)) for k in (1, 32)]
    assert line == f"| GRPO | {' | '.join(f'{statistics.fmean(one):.3f}' for one in finals)} |"
