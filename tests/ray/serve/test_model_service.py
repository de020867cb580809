"""The whole service with a real engine: OpenAI's own client, the agent, and a model exchanged."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.support.listening import OPEN_TO_ALL, open_to_all, without_cluster
from tests.support.ports import free_port
from tests.support.processes import processes_below
from tests.support.scripted import build_test_policy
from tests.support.site import SMALL_SERVICE, SOKOBAN, read_events

pytestmark = pytest.mark.ray

KEY = "a-key-of-the-tests-0123456789"
MESSAGES = [
    {"role": "system", "content": "You play Sokoban."},
    {"role": "user", "content": "######\n#P___#\n#_X__#\n#__O_#\n######"},
]
NUM_TOKENS = 24
HUGE = 100 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running ``cast-ray serve``."""

    base: str
    model_dir: Path
    process: subprocess.Popen[str]

    @property
    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.base}/v1", api_key=KEY, max_retries=0, timeout=120)

    @property
    def http(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.base, headers={"authorization": f"Bearer {KEY}"}, timeout=120
        )


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    build_test_policy(folder / "tiny", head_dim=32)
    port = free_port()
    command = [sys.executable, "-m", "cast_ray.cli", "serve", str(folder / "tiny"), *SMALL_SERVICE]
    process = subprocess.Popen(
        [*command, f"--port={port}", "--name=tiny"],
        stderr=subprocess.PIPE,
        text=True,
        env=without_cluster(CAST_RAY_API_KEYS=KEY),
    )
    said: list[str] = []
    is_ready = threading.Event()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if "Ctrl-C ends it" in line:
                is_ready.set()

    threading.Thread(target=read, daemon=True).start()
    try:
        give_up_at = time.monotonic() + 400
        while not is_ready.wait(1):
            assert process.poll() is None, "".join(said[-40:])
            assert time.monotonic() < give_up_at, "".join(said[-40:])
        yield Service(base=f"http://127.0.0.1:{port}", model_dir=folder / "tiny", process=process)
    finally:
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        process.wait(120)
        _, alive = psutil.wait_procs(children, timeout=30)
        assert not alive, alive


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The model in transformers, float32, one request at a time."""

    model: Any
    tokenizer: Any

    def greedy(self, prompt: Sequence[int]) -> tuple[list[int], list[float]]:
        """Return the likeliest tokens and how much likelier each was than the second."""
        ids, gaps = list(prompt), []
        while len(ids) < len(prompt) + NUM_TOKENS:
            with torch.no_grad():
                logprobs = self.model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
            best = logprobs.topk(2)
            gaps.append(float(best.values[0] - best.values[1]))
            ids.append(int(best.indices[0]))
            if ids[-1] == self.tokenizer.eos_token_id:
                break
        return ids[len(prompt) :], gaps


@pytest.fixture(scope="module")
def reference(service: Service) -> Reference:
    return Reference(
        model=AutoModelForCausalLM.from_pretrained(service.model_dir, dtype=torch.float32).eval(),
        tokenizer=AutoTokenizer.from_pretrained(service.model_dir),
    )


def test_models_and_errors_are_as_openais_client_expects(service: Service) -> None:
    client = service.openai
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError, match=r"other.*tiny"):
        client.models.retrieve("other")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=MESSAGES)
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=10**6)
    with pytest.raises(openai.UnprocessableEntityError):
        client.chat.completions.create(model="tiny", messages="hello")  # type: ignore[arg-type]
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()


def test_a_stream_is_the_answer_in_pieces(service: Service) -> None:
    asked: dict[str, Any] = {
        "model": "tiny",
        "messages": MESSAGES,
        "max_tokens": NUM_TOKENS,
        "temperature": 0,
        "extra_body": {"ignore_eos": True},
    }
    whole = service.openai.chat.completions.create(**asked)
    pieces = list(service.openai.chat.completions.create(**asked, stream=True))
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert text == whole.choices[0].message.content
    assert text
    assert len(pieces) > 3
    assert whole.usage is not None
    assert whole.usage.completion_tokens == NUM_TOKENS


def tokens_of(answer: Any) -> list[int]:
    return answer.choices[0].model_extra["token_ids"]


def logprobs_of(answer: Any) -> list[float]:
    return [token.logprob for token in answer.choices[0].logprobs.content]


def test_answers_are_the_models_own_alone_and_in_a_crowd(
    service: Service, reference: Reference
) -> None:
    rendered = [
        [MESSAGES[0], {"role": "user", "content": f"{MESSAGES[1]['content']}\nSteps left: {i}"}]
        for i in range(12)
    ]
    expected = []
    for messages in rendered:
        prompt = reference.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        expected.append(reference.greedy(prompt))
    asked: dict[str, Any] = {
        "model": "tiny",
        "max_tokens": NUM_TOKENS,
        "temperature": 0,
        "logprobs": True,
        "extra_body": {"return_token_ids": True},
    }
    alone = [
        service.openai.chat.completions.create(messages=messages, **asked) for messages in rendered
    ]
    assert [tokens_of(answer) for answer in alone] == [ids for ids, _ in expected]

    async def crowd() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{service.base}/v1", api_key=KEY) as client:
            return await asyncio.gather(
                *(
                    client.chat.completions.create(messages=messages, **asked)
                    for messages in rendered * 4
                )
            )

    noise, parted = 0.0, []
    for answer, single, (ids, gaps) in zip(
        asyncio.run(crowd()), alone * 4, expected * 4, strict=True
    ):
        found = tokens_of(answer)
        same = next((i for i, (a, b) in enumerate(zip(found, ids, strict=False)) if a != b), None)
        pairs = zip(logprobs_of(answer)[:same], logprobs_of(single)[:same], strict=True)
        noise = max([noise, *(abs(a - b) for a, b in pairs)])
        if same is not None:
            parted.append(gaps[same])
    # What a crowd changes is rounding: measured here, and tokens part only where it can part them.
    assert noise < 1e-3
    assert all(gap <= 2 * max(noise, 1e-6) for gap in parted), (noise, parted)
    print(f"noise {noise:.2e}, {len(parted)} of {len(expected) * 4} answers parted")


def test_the_agent_plays_with_the_real_engine(service: Service) -> None:
    with service.http as http:
        body = SOKOBAN | {"player": "agent", "turn_budget": 6, "temperature": 1.0}
        episodes = []
        for _ in range(2):
            episode = http.post("/api/episodes", json=body | {"sampling_seed": 7}).json()
            events = read_events(http.get(f"/api/episodes/{episode['id']}/events").text)
            assert events[-1][0] == "end"
            episodes.append(events[-1][2])
        assert episodes[0]["turns"]
        assert episodes[0]["end_reason"] in ("turn_budget", "solved", "deadlock", "truncated")
        answers = [[turn["answer"] for turn in episode["turns"]] for episode in episodes]
        assert answers[0] == answers[1]  # the same seed
        boards = {"puzzles": [SOKOBAN] * 20}
        results = http.post("/api/moves", json=boards).json()["results"]
        assert len({result["answer"] for result in results}) == 1


def test_nothing_of_the_service_listens_at_all_addresses_but_its_replicas(
    service: Service,
) -> None:
    assert open_to_all(service.process.pid).keys() == OPEN_TO_ALL


def test_huge_bodies_slow_readers_and_those_who_leave_disturb_nobody(service: Service) -> None:
    """Through Serve's own proxy, which stands before the guard."""
    address = ("127.0.0.1", int(service.base.rpartition(":")[2]))
    head = f"Host: localhost\r\nAuthorization: Bearer {KEY}\r\n"
    body = SOKOBAN | {"player": "agent", "turn_budget": 10, "delay_ms": 100}
    with service.http as http:
        ids = [http.post("/api/episodes", json=body).json()["id"] for _ in range(3)]
        with socket.create_connection(address, timeout=60) as huge:
            huge.sendall(
                f"POST /api/solve HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
                f"Content-Length: {HUGE}\r\n\r\n".encode()
            )
            assert b" 413 " in huge.recv(4096).split(b"\r\n")[0]
        chunked = http.post(
            "/api/solve",
            content=(b"x" * 2**20 for _ in range(HUGE // 2**20)),
            headers={"content-type": "application/json"},
        )
        assert chunked.status_code == 413
        slow = socket.create_connection(address, timeout=60)
        slow.sendall(f"GET /api/episodes/{ids[0]}/events HTTP/1.1\r\n{head}\r\n".encode())
        slow.recv(1)
        with http.stream("GET", f"/api/episodes/{ids[1]}/events") as leaving:
            next(leaving.iter_lines())
        for each in ids:
            events = read_events(http.get(f"/api/episodes/{each}/events").text)
            assert events[-1][0] == "end"
            assert events[-1][2]["end_reason"] != "failed"
        slow.close()


def test_a_killed_server_loses_no_turn_that_a_retry_can_save(service: Service) -> None:
    """Turns wait for the server that Serve starts in its place."""
    with service.http as http:
        body = SOKOBAN | {"player": "agent", "turn_budget": 12, "delay_ms": 200}
        ids = [http.post("/api/episodes", json=body).json()["id"] for _ in range(6)]
        [server] = processes_below(service.process.pid, title="ServeReplica:cast-ray-model")
        # The random model's first answer takes seconds, and mostly is cut off.
        playing = [http.get(f"/api/episodes/{each}").json()["status"] for each in ids]
        assert playing == ["playing"] * len(ids)
        server.kill()
        for each in ids:
            episode = read_events(http.get(f"/api/episodes/{each}/events", timeout=300).text)[-1][2]
            assert episode["end_reason"] != "failed", episode["error"]
