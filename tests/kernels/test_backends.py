"""Which implementation runs, why another cannot, and how the native library is found or refused."""

import _ctypes
import shutil

import pytest
import torch
from loss_cases import needs_native

from outcome_rl_kernels import backends, implementations
from outcome_rl_kernels.backends import choose, native_library, native_obstacle

LOSSES = ["linear_policy_loss", "policy_loss", "linear_logprobs"]
CPU = torch.device("cpu")


@pytest.mark.parametrize("op", LOSSES)
@needs_native
def test_auto_takes_what_is_fast_for_the_dtype(op: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        assert choose(op, "auto", CPU, dtype).impl == "native"
    for dtype in (torch.float16, torch.float64):
        assert choose(op, "auto", CPU, dtype).impl == "reference"
        assert choose(op, "reference", CPU, dtype) == ("reference", "asked for")


@pytest.mark.parametrize(
    ("op", "impl", "message"),
    [
        ("policy_loss", "cuda", "impl .*got 'cuda'"),
        ("policy_loss", "triton", "policy_loss.impl='triton'.* cannot run: .*got cpu"),
        pytest.param("policy_loss", "native", "float32 or bfloat16, got float64", marks=needs_native),
    ],
)
def test_what_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch, op: str, impl: str, message: str) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match=message):
        choose(op, impl, CPU, torch.float64)


@needs_native
def test_every_op_names_its_implementation_and_dtypes() -> None:
    found = implementations()
    assert set(found) == {*LOSSES, "linear_divergence", "OutcomeCounts"}
    if not torch.cuda.is_available():
        assert found["linear_logprobs"] == ("native", "the native library is available, for float32 or bfloat16")
        assert found["OutcomeCounts"] == ("reference", "it has no native implementation")


# --- the native library ---


@pytest.fixture
def fresh_load():
    backends.load_library.cache_clear()
    yield
    backends.load_library.cache_clear()


def test_the_environment_switches_it_off(monkeypatch, caplog):
    backends.say_once.cache_clear()
    monkeypatch.setenv("OUTCOME_RL_NATIVE", "0")
    assert native_obstacle() == "the native library is not available: switched off by OUTCOME_RL_NATIVE=0"
    assert choose("policy_loss", "auto", CPU) == ("reference", native_obstacle())
    with pytest.raises(ValueError, match=r"impl='native'.* switched off by OUTCOME_RL_NATIVE=0\. Use impl='auto'"):
        choose("policy_loss", "native", CPU)
    with pytest.raises(RuntimeError, match="not available: switched off"):
        native_library()
    assert caplog.messages == []  # it is meant


def test_an_absent_library_is_explained(monkeypatch, tmp_path, fresh_load, caplog):
    backends.say_once.cache_clear()
    monkeypatch.setattr(backends, "LIBRARY", tmp_path / "_native.so")
    reason = native_obstacle()
    assert "built without it" in reason
    assert [choose("policy_loss", "auto", CPU).impl for _ in range(2)] == ["reference"] * 2
    (message,) = caplog.messages
    assert "built without it" in message
    with pytest.raises(ValueError, match=r"C\+\+17 compiler and reinstall with OUTCOME_RL_NATIVE=1"):
        choose("policy_loss", "native", CPU)


def test_a_damaged_library_is_explained(monkeypatch, tmp_path, fresh_load):
    damaged = tmp_path / "_native.so"
    damaged.write_bytes(b"not a library")
    monkeypatch.setattr(backends, "LIBRARY", damaged)
    reason = native_obstacle()
    assert "_native.so cannot be loaded" in reason


@pytest.mark.skipif(getattr(_ctypes, "__file__", None) is None, reason="_ctypes is built into this interpreter")
def test_another_library_is_explained(monkeypatch, fresh_load):
    monkeypatch.setattr(backends, "LIBRARY", type(backends.LIBRARY)(_ctypes.__file__))
    reason = native_obstacle()
    assert "outcome_rl_sources" in reason


@pytest.fixture
def altered(tmp_path):
    """The C++ sources with one comment more."""
    folder = tmp_path / "csrc"
    shutil.copytree(backends.SOURCES, folder)
    with (folder / "exports.h").open("a") as file:
        file.write("// another line\n")
    return folder


@needs_native
def test_a_library_of_other_sources_is_refused(monkeypatch, altered, fresh_load):
    assert native_obstacle() is None
    backends.load_library.cache_clear()
    monkeypatch.setattr(backends, "SOURCES", altered)
    reason = native_obstacle()
    assert "_native.so was built from other sources" in reason
    assert choose("policy_loss", "auto", CPU).impl == "reference"


@needs_native
@pytest.mark.parametrize(("record", "refused"), [(None, True), ("0" * 64, True), ("", False)])
def test_without_sources_the_recorded_digest_counts(monkeypatch, tmp_path, fresh_load, record, refused):
    installed = tmp_path / "_native.so"
    shutil.copy(backends.LIBRARY, installed)
    if record is not None:
        digest = record or backends.sources_digest(backends.LIBRARY)
        installed.with_name("_native.so.sha256").write_text(digest)
    monkeypatch.setattr(backends, "LIBRARY", installed)
    monkeypatch.setattr(backends, "SOURCES", tmp_path / "csrc")
    assert (native_obstacle() is not None) == refused
