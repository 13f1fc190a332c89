"""A TRL that is missing, of another version, or rewritten by another package."""

import subprocess
import sys

import pytest
from trl import GRPOTrainer

from outcome_rl.integrations.trl import compatibility


@pytest.mark.parametrize("version", ["1.16.0", "1.16.3", "1.16.0.dev0"])
def test_versions_that_fit(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(compatibility, "version", lambda name: version)
    compatibility.check_trl()


@pytest.mark.parametrize("version", ["1.15.2", "1.17.0", "0.24.0", "nightly"])
def test_another_version_is_refused_with_the_command(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(compatibility, "version", lambda name: version)
    with pytest.raises(ImportError, match=rf"{version} is installed: pip install 'trl>=1.16,<1.17'"):
        compatibility.check_trl()


def test_its_absence_is_an_error_with_the_command_before_any_other_import() -> None:
    code = (
        "import importlib.metadata as m\n"
        "def missing(name): raise m.PackageNotFoundError(name)\n"
        "m.version = missing\n"
        "import outcome_rl.integrations.trl"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    message = "needs TRL, which is not installed here: pip install 'trl>=1.16,<1.17'"
    assert done.stderr.strip().endswith(message), done.stderr


def test_trls_trainer_has_every_method_to_build_on() -> None:
    compatibility.check_hooks(GRPOTrainer)


def test_a_rewritten_trainer_is_refused_with_the_method_that_differs() -> None:
    class Rewritten(GRPOTrainer):  # type: ignore[misc]
        def _compute_loss(self, model, inputs_of_step, extra):  # type: ignore[no-untyped-def]
            """Takes something else."""

    with pytest.raises(TypeError, match=r"_compute_loss\(self, model, inputs\), which takes \(self, model, inputs_of"):
        compatibility.check_hooks(Rewritten)
    with pytest.raises(TypeError, match=r"_generate_and_score_completions\(self, inputs\), which does not exist here"):
        compatibility.check_hooks(object)
