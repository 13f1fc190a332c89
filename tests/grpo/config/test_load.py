"""Configurations: layers, literal text, and an error with the key for every mistake."""

import json
import re
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tables import rows

from outcome_rl.grpo.config.load import leaves, load_config, to_yaml
from outcome_rl.grpo.config.presets import preset_names
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.retired import replacements
from outcome_rl_kernels.settings import settings_of

REQUIRED = ("model.path=toy", "data.train_files=toy:train", "trainer.experiment_name=x")


def load(*overrides: str) -> TrainConfig:
    return load_config(None, [*REQUIRED, *overrides])


@pytest.mark.parametrize("preset", preset_names())
def test_presets_load_by_name(preset: str) -> None:
    assert load_config(preset).trainer.experiment_name == preset.rpartition("/")[2]


def test_a_file_may_change_another(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "root.yaml").write_text("base: toy\nrollout:\n  n: 3\n  top_k: 7\n")
    (tmp_path / "deep" / "leaf.yaml").write_text("base: ../root.yaml\nrollout:\n  n: 4\n")
    config = load_config(tmp_path / "deep" / "leaf.yaml", ["rollout.top_p=0.5"])
    assert (config.rollout.n, config.rollout.top_k, config.rollout.top_p) == (4, 7, 0.5)
    assert config.data.train_batch_size == load_config("toy").data.train_batch_size


def test_user_code_that_changes_the_folder_moves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = load("trainer.default_local_dir=runs", "trainer.rollout_data_dir=kept")
    assert (config.run_dir, config.trainer.rollout_data_dir) == (tmp_path / "runs" / "x", str(tmp_path / "kept"))


@pytest.mark.parametrize(
    ("overrides", "method"),
    [
        ([], "maxrl with bonus batch at 0.2"),
        (["exploration.bonus=ucb"], "grpo with bonus ucb at 0.2"),
        (["exploration.bonus=none"], "grpo without a bonus"),
        (["exploration.adv_estimator=pkpo(k=4)"], "pkpo(k=4) without a bonus"),
    ],
)
def test_a_named_method_is_not_mixed_with_the_recommended_one(overrides: list[str], method: str) -> None:
    assert load(*overrides).exploration.method == method


def test_sections_may_be_empty(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("data:\nrollout:\n  # n: 3\n")
    assert load_config(path, REQUIRED) == load()


@pytest.mark.parametrize(
    "overrides",
    [
        (
            "actor.clip_ratio_c=3",
            "actor.optim.betas=[0.8,0.9]",
            "exploration.coef=0.4",
            "exploration.bonus=ucb+batch",
        ),
        ("trainer.experiment_name=007", "data.id_key=null", "data.prompt_key=1e-4", "data.answer_key=2026-01-01"),
        ("data.train_files=a${b}.jsonl",),
    ],
)
def test_yaml_round_trip(overrides: tuple[str, ...], tmp_path: Path) -> None:
    config = load(*overrides)
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(config))
    assert load_config(path) == config


def test_a_setting_may_be_a_mapping(tmp_path: Path) -> None:
    """From a file, from the command line, and from what a run has saved; a later layer replaces it."""
    path = tmp_path / "own.yaml"
    path.write_text("base: toy\ndata:\n  apply_chat_template_kwargs: {enable_thinking: false, depth: {a: 1}}\n")
    config = load_config(path)
    assert config.data.apply_chat_template_kwargs == {"enable_thinking": False, "depth": {"a": 1}}
    path.write_text(to_yaml(config))
    assert load_config(path) == config
    changed = load_config(path, ["data.apply_chat_template_kwargs={enable_thinking: true}"])
    assert changed.data.apply_chat_template_kwargs == {"enable_thinking": True}


def test_an_override_may_hold_a_section() -> None:
    assert load("rollout={n: 3, val_kwargs: {n: 5}}").rollout.val_kwargs.n == 5


@pytest.mark.parametrize("row", [*rows(__file__, "unknown keys"), *rows(__file__, "bad values")], ids=itemgetter(1))
def test_what_is_wrong_and_what_fits_are_named(row: list[str]) -> None:
    _, override, *facts = row
    with pytest.raises(ValueError, match=re.escape(facts[0])) as refusal:
        load(override)
    assert [fact for fact in facts if fact not in str(refusal.value)] == []


def test_the_settings_of_an_old_record_are_refused_with_what_to_write_now(tmp_path: Path) -> None:
    path, known = tmp_path / "old.yaml", {one.name for one in settings_of(TrainConfig)}
    record = json.loads(Path("experiments/smollm2/results/smollm2.json").read_text())["config"]
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"old\.yaml") as refusal:
        load_config(path)
    retired = {name: now for name, now in replacements().items() if name not in known}
    of_record = [name for name, _ in leaves(record) if name in retired]
    assert "unknown" not in str(refusal.value)
    assert len(of_record) > 20
    assert [name for name in of_record if f"{name} is" not in str(refusal.value)] == []
    assert [name for name in of_record if retired[name] not in str(refusal.value)] == []


@pytest.mark.parametrize("old", ["exploration.coef=[0.1, 0.2]", "data.apply_chat_template=auto"])
def test_a_retired_value_is_refused_with_what_to_write_now(old: str) -> None:
    with pytest.raises(ValueError, match=re.escape(replacements()[old.partition("=")[0]])):
        load(old)


def test_settings_that_exclude_each_other_are_refused() -> None:
    load("actor.sample_below=0.01")
    with pytest.raises(ValueError, match=r"sample_below=0\.01 .*rollout\.top_p"):
        load("actor.sample_below=0.01", "rollout.top_p=0.9")


NO_YAML = [
    *("a: [1", "rollout: {n: 2}\nrollout: {n: 3}\n", "\udcff", "\0", "model: &m {path: *m}"),
    *(
        "model: !!python/object/apply:os.getcwd []",
        "[" * 60 + "]" * 60,
        "[" * 9999,
        "".join(f"{i * ' '}a:\n" for i in range(60)),
    ),
]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "YAML") for text in NO_YAML),
        ("- a\n", "sections"),
        ("base: mine.yaml", "itself"),
        ("base: 3", "base .* 3"),
        (f"model: {{path: {'x' * 2**20}}}", "the file is larger than 1 MiB"),
        ("base: other.yaml", r"other\.yaml"),
        ("exploration:\n  bonuss: ucb\n", r"'exploration\.bonuss'.*'exploration\.bonus'"),
    ],
    ids=str,
)
def test_a_file_that_is_refused_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises((ValueError, FileNotFoundError), match=rf"(mine\.yaml: .*{message}|no .*{message})"):
        load_config(path, REQUIRED)


@settings(deadline=None, max_examples=30)
@given(st.text(), st.text())
@example(r"\${problem} \\${ a=[", "$ # put it in \\boxed{}, 'exactly'\nAnswer:")
def test_every_text_survives_the_file(before: str, after: str) -> None:
    config = load(f"data.prompt_template={before}{{problem}}{after}")
    assert config.data.prompt_template == f"{before}{{problem}}{after}"
    with TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        path.write_text(to_yaml(config), encoding="utf-8")
        assert load_config(path) == config


@pytest.mark.parametrize("name", ["missing.yaml", "embeded"])
def test_missing_files_name_the_presets(name: str) -> None:
    with pytest.raises(FileNotFoundError, match=rf"{name}; .* presets: .*\btoy\b"):
        load_config(name)


def test_required_settings_are_asked_for() -> None:
    with pytest.raises(ValueError, match=r"model\.path is not set.*--config toy"):
        load_config()
