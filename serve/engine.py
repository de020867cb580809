"""One policy engine: vLLM's AsyncLLM with exact tokens, a weight version and a clock.

Knows no Ray; ``serve.deployment`` hosts it in a Serve replica. What it promises:

* A completion's logprobs are those of the raw distribution (temperature 1, nothing cut off),
  whatever the answer was sampled with: vLLM's ``raw_logprobs`` mode, stated and not inherited.
* The model's own ``generation_config`` is ignored: it may hold a top-p that falsifies ratios.
* After ``update_weights`` every layer has been compared with the file, or the engine refuses to
  generate until an update succeeds.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Unpack

from vllm import SamplingParams
from vllm.config import WeightTransferConfig
from vllm.distributed.weight_transfer.base import (
    WeightTransferInitRequest,
    WeightTransferUpdateRequest,
)
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.exceptions import VLLMError
from vllm.inputs.engine import tokens_input
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from cast_ray.errors import EngineError, WeightSyncError
from cast_ray.generation import NO_STOP_TOKEN, Completion, GenerateRequest
from cast_ray.weights import WeightManifest
from serve.token_versions import TokenVersions, tokens_written
from serve.weight_receiver import read_receipt
from serve.wire import EngineOptions, EngineStats, WeightReceipt

MIN_BATCHED_TOKENS = 8192
"""Prompt tokens of one step, where the model's length does not ask for more."""


def engine_arguments(options: EngineOptions) -> AsyncEngineArgs:
    """Return what vLLM is told, the same for every use of an engine."""
    return AsyncEngineArgs(
        model=options["model_dir"],
        dtype=options["dtype"],
        max_model_len=options["max_model_len"],
        max_num_seqs=options["max_num_seqs"],
        kv_cache_memory_bytes=int(options["kv_cache_gib"] * 1024**3),
        block_size=options["block_size"],
        seed=options["seed"],
        weight_transfer_config=WeightTransferConfig(backend=options["weight_backend"]),
        # Seeds and prompts in chunks do not go together on CPU: each must fit one step.
        enable_chunked_prefill=False,
        max_num_batched_tokens=max(options["max_model_len"], MIN_BATCHED_TOKENS),
        enable_prefix_caching=True,
        enforce_eager=True,
        skip_tokenizer_init=True,
        generation_config="vllm",
        logprobs_mode="raw_logprobs",
        disable_log_stats=True,
    )


def sampling_params(request: GenerateRequest) -> SamplingParams:
    """Return how vLLM is to answer a request."""
    return SamplingParams(
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=0,
        min_p=0.0,
        seed=request.seed,
        stop_token_ids=[] if request.stop_token_id == NO_STOP_TOKEN else [request.stop_token_id],
        ignore_eos=True,  # only the request says where an answer ends, not the model
        logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,
    )


class PolicyEngine:
    """A vLLM engine on this machine. Make one with ``PolicyEngine.start``."""

    def __init__(
        self, llm: AsyncLLM, *, weight_version: int, stall_timeout_s: float, probe_timeout_s: float
    ) -> None:
        self._llm = llm
        self._stall_timeout_s = stall_timeout_s
        self._probe_timeout_s = probe_timeout_s
        self._weight_version = weight_version
        self._distrust = ""
        self._is_updating = False
        self._update_lock = asyncio.Lock()
        self._request_ids = itertools.count()
        self._in_flight: dict[str, TokenVersions] = {}
        self._last_answer_at = time.monotonic()
        self._num_running = 0
        self._running_since = 0.0
        self._seconds_running = 0.0
        self._num_requests = 0
        self._num_generated_tokens = 0

    @classmethod
    async def start(cls, **options: Unpack[EngineOptions]) -> PolicyEngine:
        """Start vLLM's processes, load the model and answer a first request.

        Raises:
            EngineError: vLLM does not start.
        """
        os.environ["VLLM_NO_USAGE_STATS"] = "1"
        args = engine_arguments(options)
        try:
            llm = AsyncLLM.from_engine_args(args)
        except (RuntimeError, ValueError, OSError) as error:
            raise EngineError(
                f"vLLM does not start with the model {options['model_dir']}: {error}"
            ) from error
        engine = cls(
            llm,
            weight_version=options["weight_version"],
            stall_timeout_s=options["stall_timeout_s"],
            probe_timeout_s=options["probe_timeout_s"],
        )
        await llm.init_weight_transfer_engine(WeightTransferInitRequest())
        await engine._probe()
        return engine

    @property
    def stats(self) -> EngineStats:
        """Totals up to now, a request that is running included."""
        running = time.monotonic() - self._running_since if self._num_running else 0.0
        return EngineStats(
            weight_version=self._weight_version,
            seconds_running=self._seconds_running + running,
            num_requests=self._num_requests,
            num_generated_tokens=self._num_generated_tokens,
        )

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> AsyncIterator[list[tuple[int, Completion]]]:
        """Answer requests, each as soon as it is done.

        Yields:
            Lists of (index in ``requests``, completion), everything that is done by then.

        Raises:
            EngineError: vLLM failed or refused a request; the others of this call are given up.
            WeightSyncError: the last update failed and none has succeeded since.
        """
        indices = {
            asyncio.create_task(self.answer(request)): index
            for index, request in enumerate(requests)
        }
        waiting = set(indices)
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                yield [(indices[task], task.result()) for task in done]
        finally:
            for task in waiting:
                task.cancel()

    async def answer(self, request: GenerateRequest) -> Completion:
        """Answer one request. Raises as ``generate`` does."""
        output, versions = await self._run(request.token_ids, sampling_params(request))
        answer = output.outputs[0]
        if answer.finish_reason not in ("stop", "length"):
            raise EngineError(
                f"the engine ended an answer with {answer.finish_reason!r} after "
                f"{len(answer.token_ids)} tokens; see the engine's log"
            )
        return Completion(
            token_ids=tuple(answer.token_ids),
            rollout_logprobs=tuple(answer.logprobs.logprobs),
            finish_reason=answer.finish_reason,
            weight_versions=versions.of_tokens(len(answer.token_ids)),
        )

    async def score(self, token_ids: Sequence[int]) -> tuple[float, ...]:
        """Return ``[L - 1]`` logprobs of tokens 1 .. L-1, each given those before it.

        Computed afresh from the engine's present weights, never from the prefix cache.
        """
        params = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
        output, _ = await self._run(token_ids, params)
        return tuple(
            position[token].logprob
            for position, token in zip(output.prompt_logprobs[1:], token_ids[1:], strict=True)
        )

    async def update_weights(self, manifest: WeightManifest, *, timeout_s: float) -> WeightReceipt:
        """Change to a published version, prove it, and go on with the requests in flight.

        Requests in flight keep the keys and values of the old weights and finish with the new
        ones. A file that is refused leaves the engine as it was.

        Raises:
            WeightSyncError: the file is not what was published; a layer does not hold what was
                sent; or the update took longer than ``timeout_s``. After the last two the engine
                answers nothing until an update succeeds.
        """
        async with self._update_lock:
            receipt_path = Path(f"{manifest.path}.receipt-{uuid.uuid4().hex}")
            self._is_updating = True
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._update(manifest, receipt_path)
            except asyncio.CancelledError:
                self._distrust = f"its update to version {manifest.version} was given up"
                raise
            except TimeoutError as error:
                self._distrust = f"its update to version {manifest.version} was not finished"
                raise WeightSyncError(
                    f"the engine did not load {manifest.path} within {timeout_s} s; see its log"
                ) from error
            finally:
                self._is_updating = False
                self._last_answer_at = time.monotonic()
                receipt_path.unlink(missing_ok=True)

    async def _update(self, manifest: WeightManifest, receipt_path: Path) -> WeightReceipt:
        await self._llm.pause_generation(mode="keep", clear_cache=False)
        update = {"manifest": manifest.to_json(), "receipt_path": str(receipt_path)}
        failure: Exception | None = None
        try:
            await self._llm.start_weight_update()
            await self._llm.update_weights(WeightTransferUpdateRequest(update_info=update))
        except Exception as error:  # vLLM raises bare Exception for whatever its worker raised
            failure = error
        receipt = read_receipt(receipt_path)
        if failure is None and receipt is not None and not receipt.error:
            await self._llm.finish_weight_update(weight_version=str(manifest.version))
            await self._change_version(manifest.version)
            self._distrust = ""
        elif receipt is None or receipt.is_changed:
            self._distrust = f"its update to version {manifest.version} failed"
        if not self._distrust:
            # Frees the blocks where nothing is in flight. Never relied upon: with a request in
            # flight vLLM resets nothing and only says so in its log. See ``_run``.
            await self._llm.reset_prefix_cache()
            await self._llm.resume_generation()
        if failure is not None or receipt is None:
            raise WeightSyncError(
                receipt.error if receipt and receipt.error else f"the engine failed: {failure}"
            ) from failure
        return receipt

    async def _change_version(self, version: int) -> None:
        """Note, while generation is paused, up to which token the old weights have written."""
        written = await tokens_written(self._llm)
        self._weight_version = version
        for request_id, versions in self._in_flight.items():
            # One that has ended, and whose task has not come to see it, has no token to come.
            if request_id in written:
                versions.changes.append((written[request_id], version))

    async def check_health(self) -> None:
        """Return when the engine can answer; asks nothing of it during a weight update.

        Raises:
            EngineError: a process of vLLM died, or a probe token does not come.
        """
        if self._llm.errored:
            raise EngineError("a process of the vLLM engine died; see the engine's log")
        seconds_silent = time.monotonic() - self._last_answer_at
        if seconds_silent < self._stall_timeout_s or self._is_updating or self._distrust:
            return
        try:
            async with asyncio.timeout(self._probe_timeout_s):
                await self._probe()
        except TimeoutError as error:
            raise EngineError(
                f"the engine gave no answer for {self._stall_timeout_s} s and no probe token "
                f"within {self._probe_timeout_s} s"
            ) from error

    def shutdown(self) -> None:
        """End vLLM's processes."""
        self._llm.shutdown()

    async def _probe(self) -> None:
        await self._run((0,), SamplingParams(max_tokens=1, logprobs=0, detokenize=False))

    async def _run(
        self, token_ids: Sequence[int], params: SamplingParams
    ) -> tuple[RequestOutput, TokenVersions]:
        if self._distrust:
            raise WeightSyncError(
                f"the engine's weights are not trusted because {self._distrust}; send weights again"
            )
        # The salt keeps a new request from finding a prefix that older weights computed, also
        # where requests in flight forbid to reset the cache.
        prompt = tokens_input(list(token_ids), cache_salt=str(self._weight_version))
        versions = TokenVersions(first=self._weight_version)
        request_id = str(next(self._request_ids))
        self._in_flight[request_id] = versions
        if not self._num_running:
            self._running_since = time.monotonic()
        self._num_running += 1
        try:
            async for output in self._llm.generate(prompt, params, request_id):
                if output.finished:
                    self._num_generated_tokens += len(output.outputs[0].token_ids)
                    self._last_answer_at = time.monotonic()
                    return output, versions
        except (EngineDeadError, EngineGenerateError, VLLMError) as error:
            raise EngineError(
                f"the engine did not answer a prompt of {len(token_ids)} tokens: {error}"
            ) from error
        finally:
            del self._in_flight[request_id]
            self._num_requests += 1
            self._num_running -= 1
            if not self._num_running:
                self._seconds_running += time.monotonic() - self._running_since
        raise EngineError(f"the engine ended a prompt of {len(token_ids)} tokens without an answer")
