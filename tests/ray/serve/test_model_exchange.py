"""A new model in the place of an old one, under requests: none of them is lost."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import openai
import pytest
from ray import serve as ray_serve

from cast_ray.cluster.session import ray_session
from cast_ray.config.load import load_config
from cast_ray.rollout.chat import tokenizer_digest
from cast_ray.rollout.generate import Completion, GenerateRequest, Refusal
from serve.service.access import guard_settings
from serve.service.app_handles import MODEL_APP, OPENAI_APP
from serve.service.plan import OPENAI_ROUTE, ServicePlan
from tests.ray.serve.test_model_service import MESSAGES, SETTINGS
from tests.support.ports import free_port
from tests.support.scripted import build_test_policy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.ray

NUM_CLIENTS = 4
NUM_TOKENS = 16


@dataclass
class Clients:
    """Ask again and again, and note what came."""

    base: str
    answers: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def ask_on(self) -> None:
        client = openai.OpenAI(base_url=f"{self.base}/v1", api_key="none", max_retries=0)
        while not self.is_over.is_set():
            try:
                answer = client.chat.completions.create(
                    model="tiny",
                    messages=MESSAGES,  # type: ignore[arg-type]
                    max_tokens=NUM_TOKENS,
                    temperature=0,
                    timeout=120,
                    extra_body={"return_token_ids": True},
                )
            except openai.OpenAIError as error:
                self.failures.append(repr(error))
                time.sleep(0.2)  # a server that refuses is not asked in a tight loop
            else:
                self.answers.append(str(answer.choices[0].model_extra["token_ids"]))  # type: ignore[index]


def plan_of(model_dir: Path) -> ServicePlan:
    return ServicePlan.of(
        model_dir,
        load_config(None, list(SETTINGS)),
        guard=guard_settings("127.0.0.1", ()),
        name="tiny",
    )


def ask_by_tokens(tokenizer: str) -> Completion | Refusal:
    request = GenerateRequest(
        token_ids=(5, 6, 7),
        max_tokens=2,
        temperature=0.0,
        top_p=1.0,
        seed=0,
        stop_token_ids=(),
        tokenizer=tokenizer,
    )
    handle = ray_serve.get_app_handle(MODEL_APP).options(stream=True)
    [[(_, answer)]] = list(handle.generate.remote([request]))
    handle.shutdown()  # or its thread starts a Ray of its own when this one ends
    return answer


def test_a_model_is_exchanged_without_a_lost_request(tmp_path: Path) -> None:
    for seed in (0, 1):
        build_test_policy(tmp_path / f"seed-{seed}", seed=seed, head_dim=32)
    old, new = (plan_of(tmp_path / f"seed-{seed}") for seed in (0, 1))
    port = free_port()
    clients = Clients(f"http://127.0.0.1:{port}")
    threads = [threading.Thread(target=clients.ask_on, daemon=True) for _ in range(NUM_CLIENTS)]
    with ray_session(num_cpus=old.num_cpus):
        ray_serve.start(http_options={"host": "127.0.0.1", "port": port})
        try:
            ray_serve.run(old.model_application(), name=MODEL_APP, route_prefix=None)
            ray_serve.run(old.openai_application(), name=OPENAI_APP, route_prefix=OPENAI_ROUTE)
            for thread in threads:
                thread.start()
            wait_until(
                lambda: len(clients.answers) >= 2 * NUM_CLIENTS or clients.failures,
                timeout_s=120,
                what="answers of the old model",
            )
            [first] = set(clients.answers)
            ray_serve.run(new.model_application(), name=MODEL_APP, route_prefix=None)
            time.sleep(5)  # the clients go on: what the exchange loses would show now
            own = ask_by_tokens(tokenizer_digest(new.model_dir))
            foreign = ask_by_tokens("another")
        finally:
            clients.is_over.set()
            for thread in threads:
                thread.join(130)
            ray_serve.delete(OPENAI_APP)
            ray_serve.delete(MODEL_APP)
    assert clients.failures == []
    assert clients.answers[-1] != first
    assert len(set(clients.answers)) == 2
    # A game that began before the exchange holds tokens: of another tokenizer, they say nothing.
    assert isinstance(own, Completion)
    assert isinstance(foreign, Refusal)
    assert "begin a new game" in foreign.reason
