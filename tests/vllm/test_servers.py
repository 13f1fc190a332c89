"""Two of vLLM's servers on the loopback sample in place of an engine, and one of them dies."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from vllm_samples import TEXTS, N, largest_difference, texts

from outcome_rl.grpo.config.schema import SamplingConfig, TrainConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.vllm_servers import Server, ServerFailed, ServersEngine
from outcome_rl.grpo.rollout.weight_transfer import BACKEND
from outcome_rl.grpo.types import EngineDied

KEY = "a-key-of-the-tests"


class Process:
    """`vllm serve`, by the module behind it: the command of vLLM's CPU build looks for another package's version."""

    def __init__(self, model: str, folder: Path, number: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / f"server-{number}.log"
        command = [sys.executable, "-m", "vllm.entrypoints.launchers.api_server.entry", "--model", model]
        command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
        command += ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm", "--max-model-len", "64"]
        command += ["--weight-transfer-config", f'{{"backend": "{BACKEND}"}}']
        command += ["--worker-extension-cls", "outcome_rl.grpo.rollout.vllm_worker.PolicyWorker"]
        environment = os.environ | {"VLLM_SERVER_DEV_MODE": "1", "VLLM_API_KEY": KEY, "VLLM_LOGGING_LEVEL": "WARNING"}
        self.process = subprocess.Popen(
            command, env=environment, stdout=self.log.open("w"), stderr=subprocess.STDOUT, start_new_session=True
        )

    def wait(self) -> None:
        deadline = time.monotonic() + 300
        while True:
            try:
                Server(self.url).get("/health")
                return
            except ServerFailed:
                running = self.process.poll() is None and time.monotonic() < deadline
                assert running, self.log.read_text()[-3000:]
                time.sleep(0.2)

    def kill(self) -> None:
        """Kill the server and its engine at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def servers(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Process]]:
    folder = tmp_path_factory.mktemp("servers")
    started = [Process(config.model.path, folder, number) for number in range(2)]
    try:
        for server in started:
            server.wait()
        yield started
    finally:
        for server in started:
            if server.process.poll() is None:
                server.kill()


def test_servers(servers: list[Process], config: TrainConfig, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another, because servers take long to start: weights, seeds, an open update, a death, and the end."""
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    prompts: list[list[int]] = policy.tokenizer(list(TEXTS))["input_ids"]
    sampling = SamplingConfig(n=N)
    sizes = replace(config.data, max_prompt_length=32, max_response_length=16)
    rollout = replace(config.rollout, servers=[server.url for server in servers], micro_batch_size=8)
    config = replace(config, rollout=rollout, data=sizes)

    alone = replace(config, rollout=replace(rollout, servers=[servers[0].url]))
    with closing(ServersEngine(policy, alone)) as engine:
        first = engine.generate(prompts, sampling, 16, seed=1)
    assert largest_difference(policy, first, 1.0) < 1e-4
    assert [rollout.prompt_ids for rollout in first] == [prompt for prompt in prompts for _ in range(N)]
    ended = [rollout.token_ids[-1] == policy.tokenizer.eos_token_id for rollout in first]
    assert 0 < sum(ended) < len(ended)

    Server(servers[1].url).post("/start_weight_update")  # as a trainer leaves it that is killed within an update
    with closing(ServersEngine(policy, config)) as engine:
        both = engine.generate(prompts, sampling, 16, seed=1)
        # Batches depend on the moment a request arrives, and rounding on the batch: a rare sample may differ.
        assert sum(a != b for a, b in zip(texts(both), texts(first), strict=True)) <= 1
        before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
        engine.update_weights(policy)
        moved = engine.generate(prompts, sampling, 16, seed=1)
        assert largest_difference(policy, moved, 1.0) < 1e-4
        assert texts(moved) != texts(both)
        policy.model.load_state_dict(before)
        engine.update_weights(policy)

        post, answered = Server.post, 0

        def kill_in_the_middle(server: Server, path: str, content: object = None) -> dict[str, object]:
            nonlocal answered
            if path == "/v1/completions":
                answered += 1
                if answered == 40:
                    servers[1].kill()
            return post(server, path, content)

        monkeypatch.setattr(Server, "post", kill_in_the_middle)
        with pytest.raises(EngineDied, match=servers[1].url):
            engine.generate(prompts, sampling, 16, seed=1)
    monkeypatch.setattr(Server, "post", post)
    with closing(ServersEngine(policy, alone)) as engine:  # the run goes on with the other
        assert texts(engine.generate(prompts, sampling, 16, seed=1)) == texts(first)
    log = servers[0].log.read_text()
    assert KEY not in log
