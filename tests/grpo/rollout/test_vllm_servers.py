"""Servers that die, hang, lie or do not fit, played by an HTTP server; `make test-vllm` runs vLLM's own."""

import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from grpo_runs import MakeOverrides

from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import SamplingConfig, TrainConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout import vllm_servers
from outcome_rl.grpo.rollout.vllm_servers import ServersEngine
from outcome_rl.grpo.types import EngineDied

PROMPTS = [[5, 6], [7], [8, 9, 10]]
N = 8
KEY = "sk-never-in-a-log"


class FakeServer(ThreadingHTTPServer):
    """Answers as vLLM's server does; the tokens of a response are digits of its seed."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, policy: Policy, max_model_len: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.policy = policy
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.model = {
            "dtype": "torch.float32",
            "logprobs_mode": "processed_logprobs",
            "generation_config": "vllm",
            "max_model_len": max_model_len,
        }
        self.version = "0.32.0"
        self.weights = "default"
        self.updating = False
        self.is_busy = False
        self.calls: list[str] = []
        self.keys: set[str | None] = set()
        self.seeds: list[int] = []  # of responses, answered or not
        self.sockets: dict[int, socket.socket] = {}  # by the thread that answers
        self.before_response: Callable[[int], object] = lambda number: None  # may raise
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Be silent about a client that waits no longer."""

    def answer(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        match path:
            case "/version":
                return {"version": self.version}
            case "/server_info?config_format=json":
                backend = {"backend": "file"}
                return {"vllm_config": {"model_config": self.model, "weight_transfer_config": backend}}
            case "/tokenize":
                return {"tokens": self.policy.tokenizer(content["prompt"], add_special_tokens=False)["input_ids"]}
            case "/get_world_size":
                return {"world_size": 1}
            case "/weight_info":
                return {"weight_version": self.weights}
            case "/start_weight_update":
                if self.updating:
                    raise RuntimeError("an update is open")
                self.updating = True
            case "/finish_weight_update":
                self.updating = False
                self.weights = content.get("weight_version", self.weights)
            case "/reset_prefix_cache":
                return {"success": not self.is_busy}
            case "/v1/completions":
                self.seeds.append(content["seed"])
                self.before_response(len(self.seeds))
                return {"choices": [response(content)]}
        return {}


def trickle(server: "FakeServer", trickled: str, release: threading.Event) -> None:
    """Send a byte every tenth of a second, as an answer that never ends."""
    try:
        if trickled == "body":
            server.sockets[threading.get_ident()].sendall(b"HTTP/1.0 200 OK\r\n\r\n")
        while not release.wait(0.1):
            server.sockets[threading.get_ident()].sendall(b"H")
    except OSError:
        raise ConnectionResetError from None  # the client hung up


def response(content: dict[str, Any]) -> dict[str, Any]:
    ids = [*content["prompt"], *(3 + int(digit) for digit in str(content["seed"]))]
    return {"token_ids": ids, "logprobs": {"token_logprobs": [-0.5] * len(ids)}}


class _Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        self.server.sockets[threading.get_ident()] = self.connection
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.calls.append(self.path)
        self.server.keys.add(self.headers.get("Authorization"))
        try:
            status, answer = 200, self.server.answer(self.path, json.loads(text or "{}"))
        except ConnectionError:  # a death
            self.close_connection = True
            return
        except RuntimeError as error:
            status, answer = 500, {"error": str(error)}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


class FakeSender:
    """Drives the phases as vLLM's senders do, without tensors."""

    def __init__(self, client: Any) -> None:
        self.client = client
        client.init_weight_transfer_engine({"rank_offset": 1})

    def send_weights(self) -> None:
        self.client.start_weight_update()
        self.client.update_weights({"names": []})
        self.client.finish_weight_update()

    def shutdown(self) -> None:
        pass


@pytest.fixture(autouse=True)
def no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(
        open_sender=lambda client, *_: FakeSender(client), backend=lambda device, *, servers: "file" if servers else ""
    )
    monkeypatch.setitem(sys.modules, "outcome_rl.grpo.rollout.weight_transfer", fake)
    monkeypatch.setattr(vllm_servers, "package_versions", lambda: {"vllm": "0.32.0+cpu"})
    monkeypatch.setenv("VLLM_API_KEY", KEY)


@pytest.fixture
def servers(shared_policy: Policy) -> Iterator[list[FakeServer]]:
    started = [FakeServer(shared_policy, 512) for _ in range(2)]
    yield started
    for server in started:
        server.shutdown()
        server.server_close()


def settings(servers: list[FakeServer], *overrides: str) -> TrainConfig:
    urls = ",".join(server.url for server in servers)
    return load_config("toy", ["rollout.engine=vllm", f"rollout.servers=[{urls}]", "model.device=cpu", *overrides])


def texts(engine: ServersEngine) -> list[str]:
    return [rollout.text for rollout in engine.generate(PROMPTS, SamplingConfig(n=N), 16, seed=1)]


@pytest.fixture
def expected(shared_policy: Policy, servers: list[FakeServer]) -> list[str]:
    """The samples of one server that nothing disturbs."""
    with closing(ServersEngine(shared_policy, settings(servers[:1]))) as engine:
        sampled = texts(engine)
    for server in servers:
        server.calls.clear()
        server.seeds.clear()
    assert len(set(sampled)) == len(PROMPTS) * N
    return sampled


def test_samples_do_not_depend_on_the_servers(
    shared_policy: Policy, servers: list[FakeServer], expected: list[str]
) -> None:
    with closing(ServersEngine(shared_policy, settings(servers))) as engine:
        assert texts(engine) == expected
        assert sum(len(server.seeds) for server in servers) == len(PROMPTS) * N
        assert servers[0].weights == servers[1].weights != "default"
        first = servers[0].weights
        assert texts(engine) == expected
        assert servers[0].weights == first  # nothing new, nothing sent
        engine.update_weights(shared_policy)
        texts(engine)
        assert first != servers[0].weights == servers[1].weights
        assert not any(server._sockets for server in engine._servers.servers)
    for server in servers:
        phases = [path for path in server.calls if "weight" in path and path != "/weight_info"]
        update = ["/start_weight_update", "/update_weights", "/finish_weight_update"]
        assert phases == ["/init_weight_transfer_engine", *update, *update]


def test_a_busy_server_gets_fewer_responses(shared_policy: Policy, servers: list[FakeServer]) -> None:
    servers[0].before_response = lambda number: time.sleep(0.3)
    with closing(ServersEngine(shared_policy, settings(servers, "rollout.micro_batch_size=1"))) as engine:
        texts(engine)
    assert 1 <= len(servers[0].seeds) < len(servers[1].seeds)


def fail_with(error: Exception) -> Callable[[int], None]:
    def fail(number: int) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "named"), [(ConnectionResetError(), "gives no answer"), (RuntimeError("out of memory"), "out of memory")]
)
def test_a_server_that_fails_ends_the_run_without_showing_the_key(
    error: Exception, named: str, shared_policy: Policy, servers: list[FakeServer], caplog: pytest.LogCaptureFixture
) -> None:
    servers[0].before_response = fail_with(error)
    with (
        caplog.at_level(logging.DEBUG),
        closing(ServersEngine(shared_policy, settings(servers, "rollout.micro_batch_size=2"))) as engine,
        pytest.raises(EngineDied, match=named) as raised,
    ):
        texts(engine)
    assert servers[0].url in str(raised.value)
    assert "also with other rollout.servers" in str(raised.value)
    assert servers[0].keys == servers[1].keys == {f"Bearer {KEY}"}
    assert KEY not in caplog.text + str(raised.value)


def test_a_failure_ends_the_requests_to_other_servers(shared_policy: Policy, servers: list[FakeServer]) -> None:
    """A process waits at its end for threads that wait for a response."""
    release = threading.Event()
    servers[0].before_response = fail_with(RuntimeError("out of memory"))
    servers[1].before_response = lambda number: release.wait(60)
    before = set(threading.enumerate())
    try:
        with (
            closing(ServersEngine(shared_policy, settings(servers, "rollout.micro_batch_size=2"))) as engine,
            pytest.raises(EngineDied, match="out of memory"),
        ):
            texts(engine)
        requesting = [one for one in set(threading.enumerate()) - before if one.name.startswith("ThreadPoolExecutor")]
        for thread in requesting:
            thread.join(timeout=10)
        assert not any(thread.is_alive() for thread in requesting)
    finally:
        release.set()


@pytest.mark.parametrize("trickled", ["", "header", "body"])
def test_a_request_has_a_limit_in_whole(
    trickled: str, shared_policy: Policy, servers: list[FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is silent, or sends a byte before each read times out."""
    monkeypatch.setattr(vllm_servers, "LONG_S", 0.5)
    release = threading.Event()
    servers[1].before_response = lambda number: trickle(servers[1], trickled, release) if trickled else release.wait(60)
    with (
        closing(ServersEngine(shared_policy, settings(servers))) as engine,
        pytest.raises(EngineDied, match=r"no answer within 0\.5 s"),
    ):
        texts(engine)
    release.set()


def test_an_endless_answer_is_refused(
    shared_policy: Policy, servers: list[FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(ServersEngine(shared_policy, settings(servers))) as engine:
        monkeypatch.setattr(vllm_servers, "MAX_BYTES", 100)
        with pytest.raises(EngineDied, match="more than 100 bytes"):
            texts(engine)


def test_responses_of_other_weights_are_refused(shared_policy: Policy, servers: list[FakeServer]) -> None:
    def restart(number: int) -> None:
        servers[0].weights = "default"

    servers[0].before_response = restart
    with (
        closing(ServersEngine(shared_policy, settings(servers))) as engine,
        pytest.raises(EngineDied, match="version 'default'"),
    ):
        texts(engine)


def test_keys_and_values_of_earlier_weights_are_refused(shared_policy: Policy, servers: list[FakeServer]) -> None:
    servers[1].is_busy = True
    with (
        closing(ServersEngine(shared_policy, settings(servers))) as engine,
        pytest.raises(EngineDied, match="keeps its prefix cache, of earlier weights"),
    ):
        texts(engine)


def test_an_update_that_a_killed_trainer_left_open_is_closed(
    shared_policy: Policy, servers: list[FakeServer], expected: list[str]
) -> None:
    servers[0].updating = True
    with closing(ServersEngine(shared_policy, settings(servers))) as engine:
        assert texts(engine) == expected
    assert len(servers[0].seeds) > 0


def test_a_server_that_was_started_with_other_settings_is_refused(
    shared_policy: Policy, servers: list[FakeServer]
) -> None:
    servers[1].model = {"logprobs_mode": "raw", "generation_config": "auto", "dtype": "half", "max_model_len": 8}
    with pytest.raises(ValueError, match="must be started with") as raised:
        ServersEngine(shared_policy, settings(servers))
    options = ("logprobs-mode processed_logprobs", "generation-config vllm", "dtype float32", "max-model-len")
    for named in (servers[1].url, *(f"--{option}" for option in options)):
        assert named in str(raised.value)


def test_another_version_is_refused(shared_policy: Policy, servers: list[FakeServer]) -> None:
    servers[0].version = "0.31.0"
    with pytest.raises(ValueError, match=r"runs vLLM 0\.31\.0, and 0\.32\.0 is installed here"):
        ServersEngine(shared_policy, settings(servers))


def test_another_tokenizer_is_refused(
    shared_policy: Policy, servers: list[FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers[0], "policy", SimpleNamespace(tokenizer=lambda *_, **__: {"input_ids": [1]}))
    with pytest.raises(ValueError, match="another tokenizer"):
        ServersEngine(shared_policy, settings(servers))


def test_an_address_without_a_server_is_refused(shared_policy: Policy) -> None:
    config = load_config("toy", ["rollout.engine=vllm", "rollout.servers=[http://127.0.0.1:9]", "model.device=cpu"])
    with pytest.raises(ValueError, match=r"http://127\.0\.0\.1:9/version gives no answer"):
        ServersEngine(shared_policy, config)


@pytest.mark.parametrize(
    "servers", ["localhost:8000", "ftp://host", "http://user:pass@host", "http://a:1,http://a:1/"], ids=range(4)
)
def test_bad_addresses_are_refused(servers: str, small: MakeOverrides, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match=r"rollout\.servers") as raised:
        load_config("toy", small(tmp_path, "rollout.engine=vllm", f"rollout.servers=[{servers}]"))
    assert "pass" not in str(raised.value)
