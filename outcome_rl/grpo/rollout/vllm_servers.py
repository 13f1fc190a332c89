"""Rollouts from vLLM servers that the user runs (`vllm serve`), on other machines too.

    start:    send new weights to all servers, if any -> empty prefix caches -> request each response from the first
              server that has fewer than `rollout.micro_batch_size` in progress
    generate: start -> wait -> check the version of the weights

Nothing here starts or restarts a server. One that dies, hangs, or has other weights afterwards ends the run with the
last finished step in a checkpoint; the same command continues it, also with other servers. Every response has its own
seed, so samples do not depend on the server, up to rounding.
"""

import http.client
import json
import os
import socket
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar
from urllib.parse import urlsplit

from torch import Tensor

from outcome_rl.environment import package_versions
from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import SamplingConfig, TrainConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.engine import RolloutEngine
from outcome_rl.grpo.rollout.handover import Handover, vllm_requests
from outcome_rl.grpo.types import EngineDied, Fetch, Prompts, Rollout

_PROBE = "Let x = 17 @ 5 # 3 => \\boxed{4}, äöü 😀"
API_KEY = "VLLM_API_KEY"  # the environment variable that vLLM's servers read too
SHORT_S, LONG_S = 30.0, 1800.0  # limits of a whole request: a question, and a response or new weights
MAX_BYTES = 64 * 2**20  # of an answer
T = TypeVar("T")


class ServerFailed(Exception):
    """A server did not answer, or answered with an error."""


class Server:
    """A server, and its requests in progress."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.workers = 1  # processes that receive weights
        self._sockets: set[socket.socket] = set()  # of requests in progress
        self._is_cut_off = False

    def cut_off(self) -> None:
        """End the requests in progress, for which the process would wait at its end, and refuse later ones."""
        self._is_cut_off = True
        for connection in list(self._sockets):
            _cut_off(connection)

    def get(self, path: str) -> dict[str, Any]:
        return self._request("GET", path, None, SHORT_S)

    def post(self, path: str, content: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._request("POST", path, content, LONG_S)

    def _request(self, method: str, path: str, content: Mapping[str, Any] | None, limit_s: float) -> dict[str, Any]:
        """Return the JSON of an answer, without proxies and redirects, which would see the key.

        Raises:
            ServerFailed: no whole answer within the limit, or another status than success; the key is not in its text.
        """
        parts = urlsplit(self.url)
        connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(API_KEY):
            headers["Authorization"] = f"Bearer {key}"
        wait_s = min(limit_s, SHORT_S)  # a request that connects cannot be cut off
        connection, connected, clock = connect(parts.netloc, timeout=wait_s), None, None
        try:
            connection.connect()
            wait_s, connected = limit_s, connection.sock  # which the connection forgets if the server closes it
            connected.settimeout(wait_s)
            self._sockets.add(connected)
            if self._is_cut_off:
                raise ConnectionAbortedError("the run ends")
            # The timeout is of each read; a server that sends a byte now and then is cut off by the clock.
            clock = threading.Timer(wait_s, _cut_off, [connected])
            clock.daemon = True
            clock.start()
            connection.request(method, parts.path + path, None if content is None else json.dumps(content), headers)
            response = connection.getresponse()
            text = response.read(MAX_BYTES + 1)
            if response.status in (401, 403):
                raise ServerFailed(f"{path} refuses the API key; set the environment variable {API_KEY}")
            if not 200 <= response.status < 300:
                raise ServerFailed(f"{path} answers with status {response.status}: {text[:300]!r}")
            if len(text) > MAX_BYTES:
                raise ServerFailed(f"{path} answers with more than {MAX_BYTES:,} bytes")
            return dict(json.loads(text)) if text else {}
        except (OSError, http.client.HTTPException, TypeError, ValueError, RecursionError) as error:
            raise ServerFailed(
                f"{path} gives no answer within {wait_s:g} s: {type(error).__name__}: {error}"
            ) from error
        finally:
            if clock is not None:
                clock.cancel()
            if connected is not None:
                self._sockets.discard(connected)
            connection.close()


def _cut_off(connection: socket.socket) -> None:
    with suppress(OSError):  # it has ended meanwhile
        connection.shutdown(socket.SHUT_RDWR)


class Servers:
    """The servers of a run; threads may share it.

    It is a `VLLMWeightSyncClient`, which makes the calls of vLLM's weight transfer on all servers at once.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self.servers = [Server(url) for url in urls]
        self.version = ""  # label of the weights that the servers have, or are about to get

    def each(self, call: Callable[[Server], object]) -> None:
        """Call a function for every server at the same time.

        Raises:
            EngineDied: it failed for one.
        """
        with ThreadPoolExecutor(len(self.servers)) as pool:
            list(pool.map(lambda server: _attempt(server, call), self.servers))

    def map(self, call: Callable[[Server, int], Any], count: int, concurrency: int) -> list[Any]:
        """Return `call(server, index)` for every index, each from the first server that is free.

        Args:
            call: makes a request.
            count: number of indices.
            concurrency: maximum number of requests in progress per server.

        Raises:
            EngineDied: a server failed, or has weights of another version afterwards. The other requests are ended.
        """
        free: SimpleQueue[Server] = SimpleQueue()
        for server in self.servers * concurrency:
            free.put(server)

        def request(index: int) -> Any:
            server = free.get()
            try:
                return _attempt(server, lambda server: call(server, index))
            finally:
                free.put(server)

        pool = ThreadPoolExecutor(min(count, concurrency * len(self.servers)))
        try:
            results = list(pool.map(request, range(count)))
        except BaseException:
            self.cut_off()  # the others may hang too
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        self.each(self._check_version)
        return results

    def cut_off(self) -> None:
        """End all requests, and refuse later ones."""
        for server in self.servers:
            server.cut_off()

    def _check_version(self, server: Server) -> None:
        has = server.get("/weight_info").get("weight_version")
        if has != self.version:
            raise ServerFailed(
                f" has weights of version {has!r} instead of {self.version!r}: restarted, or used by another run"
            )

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        offset, infos = init_info.get("rank_offset", 0), {}
        for server in self.servers:
            infos[server] = init_info | ({"rank_offset": offset} if offset else {})
            offset += server.workers if offset else 0
        self.each(lambda server: server.post("/init_weight_transfer_engine", {"init_info": infos[server]}))

    def start_weight_update(self) -> None:
        def start(server: Server) -> None:
            try:
                server.post("/start_weight_update")
            except ServerFailed:  # a trainer was killed during an update, which is still open
                server.post("/finish_weight_update")
                server.post("/start_weight_update")

        self.each(start)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.each(lambda server: server.post("/update_weights", {"update_info": update_info}))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        content = {"weight_version": weight_version or self.version}
        self.each(lambda server: server.post("/finish_weight_update", content))


def _attempt(server: Server, call: Callable[[Server], T]) -> T:
    try:
        return call(server)
    except ServerFailed as error:
        raise EngineDied(
            f"rollout.servers: {server.url}{error}. The finished steps are in a checkpoint: the same command continues "
            "the run, also with other rollout.servers"
        ) from error


def _forget_prefixes(server: Server) -> None:
    """Empty the prefix cache of a server, whose keys and values are of earlier weights."""
    if server.post("/reset_prefix_cache").get("success") is False:
        raise ServerFailed(
            " keeps its prefix cache, of earlier weights, because it answers other requests; let only this run use it"
        )


class ServersEngine(RolloutEngine):
    """The servers, with the weights of a policy."""

    def __init__(self, policy: Policy, config: TrainConfig) -> None:
        """Check the servers; they get their weights before the first rollout.

        Raises:
            ValueError: a server does not answer, or does not fit this run.
        """
        self._policy = policy
        self._config = config
        self._servers = Servers(config.rollout.servers)
        for server in self._servers.servers:
            try:
                self._check(server)
            except (ServerFailed, KeyError) as error:
                why = f" is no vLLM server: no {error} in its answer" if isinstance(error, KeyError) else error
                raise ValueError(f"rollout.servers: {server.url}{why}") from error
        self._handover = Handover(policy)
        self._sender: Any = None
        self._weights: Mapping[str, Tensor] = {}  # while they are sent
        self._thread = ThreadPoolExecutor(1, "rollouts")
        self._in_work: Future[list[Rollout]] = self._thread.submit(list)
        self.update_weights(policy)

    def close(self) -> None:
        """End the requests and remove the folder for weights; the servers run on."""
        self._servers.cut_off()
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._sender is not None:
            self._sender.shutdown()
        self._handover.cleanup()

    def update_weights(self, policy: Policy) -> None:
        self._policy = policy
        self._has_old_weights = True

    def generate(self, prompts: Prompts, sampling: SamplingConfig, max_tokens: int, seed: int) -> list[Rollout]:
        return self.start(prompts, sampling, max_tokens, seed)()

    def start(self, prompts: Prompts, sampling: SamplingConfig, max_tokens: int, seed: int) -> Fetch:
        """Send new weights and begin to request responses, in a thread."""
        wait([self._in_work])
        if self._has_old_weights:
            weights = self._policy.published_weights()  # collective if the policy is sharded
            self._servers.version = distributed.on_rank_zero(lambda: self._send(weights))
            self._has_old_weights = False
        self._servers.each(_forget_prefixes)
        repeated, settings = vllm_requests(self._policy, prompts, sampling, max_tokens, seed)

        def sample(server: Server, index: int) -> tuple[list[int], list[float]]:
            request = {"model": None, "prompt": repeated[index], "return_token_ids": True} | settings[index]
            answer = server.post("/v1/completions", request)
            try:
                (choice,) = answer["choices"]
                token_ids, logps = choice["token_ids"], choice["logprobs"]["token_logprobs"]
            except (KeyError, TypeError, ValueError) as error:
                raise ServerFailed(f"/v1/completions has no token_ids and logprobs: {str(answer)[:300]}") from error
            if not token_ids or len(token_ids) != len(logps):
                raise ServerFailed(f"/v1/completions has {len(token_ids)} tokens and {len(logps)} log-probabilities")
            return token_ids, logps

        tokenizer = self._policy.tokenizer

        def finish() -> list[Rollout]:
            sampled = self._servers.map(sample, len(repeated), self._config.rollout.micro_batch_size)
            return [Rollout.decoded(tokenizer, *row) for row in zip(repeated, *zip(*sampled, strict=True), strict=True)]

        self._in_work = self._thread.submit(finish)
        return self._in_work.result

    def _send(self, weights: Mapping[str, Tensor]) -> str:
        """Send weights to all servers, and return their version."""
        from outcome_rl.grpo.rollout.weight_transfer import open_sender

        self._servers.version = uuid.uuid4().hex
        self._weights = weights
        if self._sender is None:
            workers = sum(server.workers for server in self._servers.servers)
            device, folder = self._policy.device, self._handover.name
            self._sender = open_sender(self._servers, lambda: self._weights, device, folder, workers)
        self._sender.send_weights()
        self._weights = {}
        return self._servers.version

    def _check(self, server: Server) -> None:
        """Raise ServerFailed if a server does not answer, or does not fit this run."""
        from outcome_rl.grpo.rollout.weight_transfer import backend

        config, tokenizer = self._config, self._policy.tokenizer
        here, there = package_versions()["vllm"].partition("+")[0], server.get("/version")["version"].partition("+")[0]
        if here != there:
            raise ServerFailed(f" runs vLLM {there}, and {here} is installed here; install the same version")
        try:
            started = server.get("/server_info?config_format=json")["vllm_config"]
        except ServerFailed as error:
            raise ServerFailed(f"{error}; start it with the environment variable VLLM_SERVER_DEV_MODE=1") from error
        options = started["model_config"] | {"backend": (started["weight_transfer_config"] or {}).get("backend")}
        wanted = {
            "dtype": (f"torch.{config.model.dtype}", f"--dtype {config.model.dtype}"),
            "logprobs_mode": ("processed_logprobs", "--logprobs-mode processed_logprobs"),
            "generation_config": ("vllm", "--generation-config vllm"),
            "backend": (
                name := backend(self._policy.device, servers=True),
                f"""--weight-transfer-config '{{"backend": "{name}"}}'""",
            ),
        }
        wrong = [f"{option} (has {options[key]})" for key, (value, option) in wanted.items() if options[key] != value]
        if options["max_model_len"] < config.data.max_length:
            wrong.append(f"--max-model-len {config.data.max_length} (has {options['max_model_len']})")
        if wrong:
            raise ServerFailed(f" must be started with {', '.join(wrong)}")
        server.workers = int(server.get("/get_world_size")["world_size"])
        ids = server.post("/tokenize", {"prompt": _PROBE, "add_special_tokens": False})["tokens"]
        own = tokenizer(_PROBE, add_special_tokens=False)["input_ids"]
        if ids != own:
            raise ServerFailed(f" has another tokenizer than model.path={config.model.path!r}: {ids} instead of {own}")
