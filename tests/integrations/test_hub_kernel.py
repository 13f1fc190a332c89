"""The folder of `bench/hub.py`, loaded by Hugging Face's `kernels` in a process without the installed package."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A process of its own: no other module may lend the kernel what its folder lacks.
PROGRAM = """
import json, sys
from pathlib import Path
sys.modules["outcome_rl"] = sys.modules["outcome_rl_kernels"] = None  # any import of them fails
import kernels, torch

kernel = kernels.get_local_kernel(Path(sys.argv[1]), backend="cpu")
g = torch.Generator().manual_seed(0)
hidden, weight = (torch.randn(*shape, generator=g).requires_grad_() for shape in ((2, 5, 8), (31, 8)))
labels, mask = torch.randint(31, (2, 5), generator=g), torch.ones(2, 5, dtype=torch.bool)
expected = (hidden @ weight.T).log_softmax(-1).gather(-1, labels[..., None])[..., 0]
logps, entropies, *others = kernel.ChunkedLogProbFunction.apply(
    hidden.view(-1, 8), weight, None, labels.view(-1), 1.0, 32, None, 1.0, ("entropy",)
)
torch.testing.assert_close(logps.view(2, 5), expected)
assert entropies.shape == (10,) and others == [None] * 3
found = torch.autograd.grad(logps.sum(), (hidden, weight), retain_graph=True)
torch.testing.assert_close(found, torch.autograd.grad(expected.sum(), (hidden, weight)))
loss = kernel.linear_policy_loss(hidden, weight, labels, torch.tensor([1.0, -1.0]), mask, token_loss="cispo").loss
loss.backward()
assert hidden.grad.abs().sum() > 0

other = kernels.get_local_kernel(Path(sys.argv[2]), backend="cpu")  # another version beside it
assert other is not kernel and other.linear_logprobs is not kernel.linear_logprobs
print(json.dumps(sorted(kernel.__all__)))
"""


def write(folder: Path) -> Path:
    subprocess.run([sys.executable, ROOT / "bench" / "hub.py", folder], check=True)
    return folder


def test_the_folder_is_complete_and_two_versions_live_in_one_process(tmp_path: Path) -> None:
    first, second = write(tmp_path / "first"), write(tmp_path / "second")
    for metadata in second.glob("build/*/metadata.json"):  # as a later version: another id, and its operators' names
        old = json.loads(metadata.read_text())["id"]
        for file in [metadata, *metadata.parent.rglob("*.py")]:
            file.write_text(file.read_text().replace(old, f"{old}_later"))
    done = subprocess.run([sys.executable, "-c", PROGRAM, first, second], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ChunkedLogProbFunction" in json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_digests_are_those_that_the_hub_checks(tmp_path: Path, backend: str) -> None:
    from kernels_data import Digest, DigestValidationError, Metadata

    variant = write(tmp_path) / "build" / f"torch-{backend}"
    metadata = Metadata.read_from_file(variant / "metadata.json")
    assert metadata.id.isidentifier()
    metadata.digest.validate(Digest.hash_variant(metadata.digest.algorithm, variant))
    (variant / "checks.py").write_text("")
    with pytest.raises(DigestValidationError, match=r"checks\.py"):
        metadata.digest.validate(Digest.hash_variant(metadata.digest.algorithm, variant))
