"""The trained model as a Serve deployment of Ray's LLM library, for chat clients and for the agent.

A replica has one copy of the weights for both: OpenAI's clients through ``ray.serve.llm``, and the
agent, which sends the exact token ids of its conversations, many in one call.

Importing this takes seconds and a gigabyte (vLLM): only what deploys or hosts a model does.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psutil
from ray import serve as ray_serve
from ray.serve.deployment import Application
from ray.serve.llm import LLMConfig, ModelLoadingConfig
from ray.serve.llm.deployment import LLMServer
from ray.serve.llm.openai_api_models import CompletionRequest

from cast_ray.cluster.placement import bundle_of
from cast_ray.errors import EngineError
from cast_ray.rollout.chat import tokenizer_digest
from cast_ray.rollout.generate import Completion, GenerateRequest, Refusal
from cast_ray.rollout.specs import conversation_limit
from serve.engine.answers import answers_as_done
from serve.engine.deployment import ENGINE_ENVIRONMENT
from serve.engine.overheard import BEFORE_FAILURE_S, Overheard
from serve.engine.vllm_args import loadable, vllm_arguments
from serve.messages import EngineStats
from serve.orphans import guard_children
from serve.service.plan import ServicePlan


class ModelServer(LLMServer):
    """Ray's model server, which also answers the agent."""

    async def __init__(self, llm_config: LLMConfig, **rest: Any) -> None:
        guard_children()
        self._stats = EngineStats.of_new_engine()
        self._progress_at = time.monotonic()
        self._model = llm_config.model_id
        loading = cast(ModelLoadingConfig, llm_config.model_loading_config)
        self._tokenizer = tokenizer_digest(Path(str(loading.model_source)))
        with Overheard() as self._heard:
            await super().__init__(llm_config, **rest)

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> AsyncIterator[list[tuple[int, Completion | Refusal]]]:
        """Answer requests, each as soon as it is done, as ``PolicyEngine.generate`` does.

        Raises:
            EngineError: the engine failed; the other requests of this call are cancelled.
        """
        async for batch in answers_as_done(requests, self._answer):
            yield batch

    async def stats(self) -> EngineStats:
        """Return what a client needs to tell a busy server from a stalled one."""
        return replace(
            self._stats,
            seconds_since_progress=time.monotonic() - self._progress_at,
            replica_bytes=psutil.Process().memory_info().rss,
        )

    async def _answer(self, request: GenerateRequest) -> Completion | Refusal:
        if request.tokenizer not in ("", self._tokenizer):
            return Refusal(reason="the new model has another tokenizer; begin a new game")
        body = CompletionRequest(
            model=self._model,
            prompt=list(request.token_ids),
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed,
            stop_token_ids=list(request.stop_token_ids),
            logprobs=0,  # only of the sampled tokens
            return_token_ids=True,
            stream=True,  # so that a long answer counts as progress
        )
        pieces: list[Any] = []
        self._stats.num_running += 1
        try:
            async for written in await self.completions(body):
                self._progress_at = time.monotonic()
                pieces += written
            outcome = self._outcome(pieces)
        finally:
            self._stats.num_running -= 1
        self._stats.num_requests += 1
        if isinstance(outcome, Refusal):
            self._stats.num_refused += 1
        else:
            self._stats.num_generated_tokens += len(outcome.token_ids)
        return outcome

    def _outcome(self, pieces: list[Any]) -> Completion | Refusal:
        """Return the stream of vLLM's OpenAI layer as one of our answers.

        Args:
            pieces: ``data: JSON`` up to ``data: [DONE]``, or only an object of Ray's (hence Any)
                with an error, if the request was refused before its first token.

        Raises:
            EngineError: it is an error, and another try may succeed.
        """
        if (error := getattr(pieces[0], "error", None)) and error.code < 500:
            return Refusal(reason=error.message)
        parts = [] if error else [json.loads(text.removeprefix("data: ")) for text in pieces[:-1]]
        if failure := error.message if error else parts[-1].get("error", {}).get("message"):
            cause = self._heard.first_error(within_s=BEFORE_FAILURE_S)
            raise EngineError(f"the vLLM engine failed: {cause or failure}")
        choices = [part["choices"][0] for part in parts]
        token_ids = tuple(token for choice in choices for token in choice["token_ids"])
        return Completion(
            token_ids=token_ids,
            rollout_logprobs=tuple(
                logprob for choice in choices for logprob in choice["logprobs"]["token_logprobs"]
            ),
            finish_reason="stop" if choices[-1]["finish_reason"] == "stop" else "length",
            weight_versions=(0,) * len(token_ids),
        )


def model_application(plan: ServicePlan) -> Application:
    """Return the model servers as an application of their own, without a route.

    The model's directory must be on every host that may get a replica.

    Raises:
        ConfigError: an option of ``engine.vllm`` is unknown or must be set elsewhere.
    """
    config = llm_config(plan)
    serve_options = ModelServer.get_deployment_options(config) | {
        "name": "ModelServer",
        "max_ongoing_requests": 10_000,
        "health_check_period_s": 5,
        # A replica answers its requests before it ends: exchanging the model loses none of them.
        "graceful_shutdown_timeout_s": 120,
        "graceful_shutdown_wait_loop_s": 1,
    }
    return ray_serve.deployment(**serve_options)(ModelServer).bind(llm_config=config)


def llm_config(plan: ServicePlan) -> LLMConfig:
    """Return the configuration for Ray's LLM library."""
    engine, resources = plan.config.engine, plan.config.resources
    bundle = bundle_of(resources.cpus_per_engine, 1 if resources.gpus_per_engine else 0)
    return LLMConfig(
        # ``loadable``: known on this host alone; other folders are as they are.
        model_loading_config={"model_id": plan.name, "model_source": str(loadable(plan.model_dir))},
        deployment_config={
            "autoscaling_config": {
                "min_replicas": plan.min_replicas,
                "max_replicas": plan.max_replicas,
                "target_ongoing_requests": max(1, engine.max_num_seqs // 2),
            }
        },
        placement_group_config={"bundles": [dict(bundle)] * engine.tensor_parallel_size},
        runtime_env={"env_vars": ENGINE_ENVIRONMENT | {"OMP_NUM_THREADS": str(engine.num_threads)}},
        log_engine_metrics=False,
        engine_kwargs=vllm_arguments(
            engine,
            max_model_len=conversation_limit(plan.config),
            seed=0,
            on_cpu=not resources.gpus_per_engine,
        ),
    )
