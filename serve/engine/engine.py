"""One policy engine: vLLM's AsyncLLM with exact tokens, a weight version and a clock.

Knows no Ray; ``serve.engine.deployment`` hosts it in a Serve replica. What it promises:

* A completion's logprobs are those of the raw distribution (temperature 1, nothing cut off),
  whatever the answer was sampled with: vLLM's ``raw_logprobs`` mode, stated and not inherited.
* The model's own ``generation_config`` is ignored: it may hold a top-p that falsifies ratios.
* After ``update_weights`` every layer has been compared with the file, or the engine refuses to
  generate until an update succeeds.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Unpack, cast

from vllm import SamplingParams
from vllm.distributed.weight_transfer.base import (
    WeightTransferInitRequest,
    WeightTransferUpdateRequest,
)
from vllm.exceptions import VLLMClientError, VLLMError
from vllm.inputs.engine import tokens_input
from vllm.logprobs import FlatLogprobs, Logprob
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from cast_ray.errors import EngineError, TransferBroken, WeightSyncError
from cast_ray.rollout.generate import NO_STOP_TOKEN, Completion, GenerateRequest, Refusal
from cast_ray.weights.manifest import WeightManifest
from serve.engine.stats import EngineFigures, check_progress
from serve.engine.vllm_args import start_vllm
from serve.engine.weight_update import TokenVersions, tokens_written
from serve.messages import EngineOptions, EngineStats, WeightReceipt
from serve.weights.receipts import WeightRoute, collect_receipts, discard_receipts

_DEATH_KNOWN_S = 2.0
"""vLLM knows of a dead process so soon after a call to it has failed."""


class PolicyEngine:
    """A vLLM engine on this machine. Make one with ``PolicyEngine.start``."""

    def __init__(self, llm: AsyncLLM, figures: EngineFigures, options: EngineOptions) -> None:
        self._llm = llm
        self._figures = figures
        self._stall_timeout_s = options["stall_timeout_s"]
        self._probe_timeout_s = options["probe_timeout_s"]
        self._update_timeout_s = options["update_timeout_s"]
        self._weight_version = options["weight_version"]
        self._num_vocabulary = llm.model_config.get_vocab_size()
        self._distrust = ""
        self._stall = ""
        self._is_updating = False
        self._is_resting = False
        self._update_lock = asyncio.Lock()
        self._update_ended = asyncio.Event()
        self._request_ids = itertools.count()
        self._in_flight: dict[str, TokenVersions] = {}

    @classmethod
    async def start(cls, **options: Unpack[EngineOptions]) -> PolicyEngine:
        """Start vLLM's processes, load the model and answer a first request.

        Raises:
            EngineError: vLLM does not start.
        """
        figures = EngineFigures()
        engine = cls(start_vllm(options, figures), figures, options)
        await engine._llm.init_weight_transfer_engine(WeightTransferInitRequest())
        await engine._probe()
        return engine

    @property
    def weight_version(self) -> int:
        """The version that new requests are answered with."""
        return self._weight_version

    @property
    def is_dead(self) -> bool:
        """Whether a process of vLLM has died."""
        return self._llm.errored

    @property
    def stats(self) -> EngineStats:
        """Totals up to now, a request that is running included."""
        return self._figures.stats(self._weight_version)

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> AsyncIterator[list[tuple[int, Completion | Refusal]]]:
        """Answer requests, each as soon as it is done.

        Yields:
            Lists of (index in ``requests``, completion or refusal), all that is done by then.

        Raises:
            EngineError: vLLM failed, or no newer weights came for a request that waited for them;
                the others of this call are given up.
            WeightSyncError: the last update failed and none has succeeded since.
        """
        # A queue and not asyncio.wait, which looks at all tasks again whenever one ends.
        ended: asyncio.Queue[asyncio.Task[Completion | Refusal]] = asyncio.Queue()
        indices: dict[asyncio.Task[Completion | Refusal], int] = {}
        for index, request in enumerate(requests):
            task = asyncio.create_task(self.answer(request))
            task.add_done_callback(ended.put_nowait)
            indices[task] = index
        try:
            while indices:
                done = [await ended.get()]
                while not ended.empty():
                    done.append(ended.get_nowait())
                yield [(indices.pop(task), task.result()) for task in done]
        finally:
            for task in indices:
                task.cancel()

    async def answer(self, request: GenerateRequest) -> Completion | Refusal:
        """Answer one request. Raises as ``generate`` does."""
        try:
            params = sampling_params(request)
            self._check_tokens(request.token_ids)
            await self._admit(request.min_weight_version)
            output, versions = await self._run(request.token_ids, params)
        except (VLLMClientError, ValueError) as error:
            self._figures.num_refused += 1
            reason = " ".join(str(error).split())
            return Refusal(reason=f"a prompt of {len(request.token_ids)} tokens: {reason}")
        answer = output.outputs[0]
        if answer.finish_reason not in ("stop", "length"):
            raise EngineError(
                f"the engine ended an answer with {answer.finish_reason!r} after "
                f"{len(answer.token_ids)} tokens; see the engine's log"
            )
        return Completion(
            token_ids=tuple(answer.token_ids),
            rollout_logprobs=tuple(cast(FlatLogprobs, answer.logprobs).logprobs),
            finish_reason=answer.finish_reason,
            weight_versions=versions.of_tokens(len(answer.token_ids)),
        )

    async def score(self, token_ids: Sequence[int]) -> tuple[float, ...]:
        """Return ``[L - 1]`` logprobs of tokens 1 .. L-1, each given those before it.

        Computed afresh from the engine's present weights, never from the prefix cache.
        """
        params = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
        await self._admit(self._weight_version)
        try:
            output, _ = await self._run(token_ids, params)
        except VLLMClientError as error:
            raise EngineError(f"cannot score {len(token_ids)} tokens: {error}") from error
        positions = cast(list[dict[int, Logprob]], output.prompt_logprobs)  # the first is None
        return tuple(
            position[token].logprob
            for position, token in zip(positions[1:], token_ids[1:], strict=True)
        )

    async def update_weights(
        self, manifest: WeightManifest, *, timeout_s: float, route: WeightRoute | None = None
    ) -> WeightReceipt:
        """Change to a published version, prove it, and go on with the requests in flight.

        Requests in flight keep the keys and values of the old weights and finish with the new
        ones. Tensors that are refused leave the engine as it was.

        Args:
            manifest: of the version; its folder is on this host.
            timeout_s: for the whole update.
            route: where the learner broadcasts the tensors; None = the file has them.

        Raises:
            TransferBroken: the broadcast broke off; the engine is as it was.
            WeightSyncError: the tensors are not what was published, or a layer does not hold what
                was sent. After the latter the engine answers nothing until an update succeeds.
            EngineError: a process of vLLM died; or the update took longer than ``timeout_s``, which
                makes the engine unhealthy.
        """
        # Shielded: vLLM is left half-way where whoever asked for an update goes away.
        work = self._update_alone(manifest, timeout_s, route=route)
        receipt = await asyncio.shield(asyncio.create_task(work))
        assert receipt is not None
        return receipt

    async def take_newer(self, manifest: WeightManifest, *, timeout_s: float) -> None:
        """Do as ``update_weights`` if the version is still newer than what the engine has then."""
        work = self._update_alone(manifest, timeout_s, only_newer=True)
        await asyncio.shield(asyncio.create_task(work))

    async def _update_alone(
        self,
        manifest: WeightManifest,
        timeout_s: float,
        *,
        only_newer: bool = False,
        route: WeightRoute | None = None,
    ) -> WeightReceipt | None:
        async with self._update_lock:
            if only_newer and manifest.version <= self._weight_version:
                return None
            receipt_path = Path(f"{manifest.path}.receipt-{uuid.uuid4().hex}")
            update = {"manifest": manifest.to_json(), "receipt_path": str(receipt_path)}
            if route is not None:
                update |= route.update_fields(timeout_s)
            await self._wake_up()
            self._is_updating = True
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._update(manifest, receipt_path, update)
            except TimeoutError as error:
                self._distrust = f"its update to version {manifest.version} was not finished"
                self._stall = f"the engine did not load {manifest.path} within {timeout_s} s"
                raise EngineError(f"{self._stall}; it is ended and started again") from error
            finally:
                self._is_updating = False
                self._figures.note_progress()
                self._update_ended.set()
                self._update_ended = asyncio.Event()
                discard_receipts(receipt_path)

    async def _update(
        self, manifest: WeightManifest, receipt_path: Path, update: dict[str, Any]
    ) -> WeightReceipt:
        await self._llm.pause_generation(mode="keep", clear_cache=False)
        failure: Exception | None = None
        try:
            await self._llm.start_weight_update()
            await self._llm.update_weights(WeightTransferUpdateRequest(update_info=update))
        except Exception as error:  # vLLM raises bare Exception for whatever its worker raised
            failure = error
        num_ranks = self._llm.vllm_config.parallel_config.world_size
        receipt = collect_receipts(receipt_path, num_ranks=num_ranks, version=manifest.version)
        is_right = failure is None and not receipt.error
        if failure is None:
            # Ends the update in every worker, also where one of them refused it.
            version = str(manifest.version) if is_right else None
            await self._llm.finish_weight_update(weight_version=version)
        if is_right:
            await self._change_version(manifest.version)
            self._distrust = ""
        elif failure is not None or receipt.is_changed:
            self._distrust = f"its update to version {manifest.version} failed"
        if not self._distrust:
            # Frees the blocks where nothing is in flight. Never relied upon: with a request in
            # flight vLLM resets nothing and only says so in its log. See ``_run``.
            await self._llm.reset_prefix_cache()
            await self._llm.resume_generation()
        if await self._has_died(failure):
            raise EngineError("a process of the vLLM engine died during a weight update")
        if failure is not None:
            raise WeightSyncError(f"the engine failed: {failure}") from failure
        if receipt.error:
            raise (TransferBroken if receipt.is_broken else WeightSyncError)(receipt.error)
        return receipt

    async def _has_died(self, failure: Exception | None) -> bool:
        """Return whether a failed update is the death of a process, which vLLM may say later."""
        deadline = time.monotonic() + (_DEATH_KNOWN_S if failure is not None else 0.0)
        while not self._llm.errored and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        return self._llm.errored

    async def _change_version(self, version: int) -> None:
        """Note, while generation is paused, up to which token the old weights have written."""
        written = await tokens_written(self._llm)
        self._weight_version = version
        for request_id, versions in self._in_flight.items():
            # One that has ended, and whose task has not come to see it, has no token to come.
            if request_id in written:
                versions.changes.append((written[request_id], version))

    async def rest(self) -> None:
        """Give the GPU's memory to the learner: weights go to the host, prefixes are dropped.

        Requests that come meanwhile wait for ``wake``.
        """
        async with self._update_lock:
            if not self._is_resting:
                self._is_resting = True
                await self._llm.sleep(level=1, mode="keep")

    async def wake(self) -> None:
        """Take the memory back and go on; nothing where the engine is awake."""
        async with self._update_lock:
            await self._wake_up()

    async def _wake_up(self) -> None:
        if self._is_resting:
            await self._llm.wake_up()
            self._is_resting = False
            self._figures.note_progress()

    async def check_health(self) -> None:
        """Return, within the probe's time-out, when the engine can answer.

        Asks nothing of it during a weight update, nor while it waits for one to succeed or rests.

        Raises:
            EngineError: a process of vLLM died, or the engine is stalled.
        """
        if self._llm.errored:
            raise EngineError("a process of the vLLM engine died; see the engine's log")
        if self._stall:
            raise EngineError(self._stall)
        await check_progress(
            self._figures,
            self._probe,
            is_suspended=lambda: self._is_updating or self._is_resting or bool(self._distrust),
            stall_timeout_s=self._stall_timeout_s,
            probe_timeout_s=self._probe_timeout_s,
        )

    def shutdown(self) -> None:
        """End vLLM's processes."""
        self._llm.shutdown()

    async def _probe(self) -> None:
        params = SamplingParams(max_tokens=1, logprobs=0, detokenize=False)
        request_id = str(next(self._request_ids))
        try:
            async for _ in self._llm.generate(tokens_input([0]), params, request_id):
                pass
        except (EngineDeadError, EngineGenerateError) as error:
            raise EngineError(f"the engine did not answer a probe: {error}") from error

    def _check_tokens(self, token_ids: Sequence[int]) -> None:
        # vLLM leaves ids to the tokenizer, which it does not have here; one that is out of range
        # would end the core.
        for token in (min(token_ids, default=0), max(token_ids, default=0)):
            if not 0 <= token < self._num_vocabulary:
                raise ValueError(f"{token} is none of {self._num_vocabulary} token ids")

    async def _admit(self, min_version: int) -> None:
        """Return when a request may be handed to vLLM: no update runs, the weights are new enough.

        A request that came in during an update would find the prefixes of the old weights.

        Raises:
            WeightSyncError: the weights are not trusted.
            EngineError: no weights came that are new enough.
        """
        deadline = time.monotonic() + self._update_timeout_s
        while self._is_updating or (not self._distrust and self._weight_version < min_version):
            # An update has a limit of its own.
            left_s = None if self._is_updating else max(0.0, deadline - time.monotonic())
            try:
                async with asyncio.timeout(left_s):
                    await self._update_ended.wait()
            except TimeoutError as error:
                raise EngineError(
                    f"the engine has weights of version {self._weight_version}, and none of "
                    f"version {min_version}, which a request waits for, came within "
                    f"{self._update_timeout_s} s; see whether weight updates reach it"
                ) from error
        if self._llm.errored or self._stall:
            # Not a word of the weights: another engine, or the next of this one, may answer.
            raise EngineError(self._stall or "a process of the vLLM engine died; see its log")
        if self._distrust:
            raise WeightSyncError(
                f"the engine's weights are not trusted because {self._distrust}; send weights again"
            )

    async def _run(
        self, token_ids: Sequence[int], params: SamplingParams
    ) -> tuple[RequestOutput, TokenVersions]:
        # The salt keeps a new request from finding a prefix that older weights computed, also
        # where requests in flight forbid to reset the cache.
        prompt = tokens_input(list(token_ids), cache_salt=str(self._weight_version))
        versions = TokenVersions(first=self._weight_version)
        request_id = str(next(self._request_ids))
        self._in_flight[request_id] = versions
        self._figures.begin_request()
        num_tokens = 0
        try:
            async for output in self._llm.generate(prompt, params, request_id):
                if output.finished:
                    num_tokens = len(output.outputs[0].token_ids)
                    return output, versions
        except VLLMClientError:
            raise
        except (EngineDeadError, EngineGenerateError, VLLMError) as error:
            if isinstance(error.__cause__, ValueError):  # said before the core was asked
                raise error.__cause__ from None
            raise EngineError(
                f"the engine did not answer a prompt of {len(token_ids)} tokens: {error}"
            ) from error
        finally:
            del self._in_flight[request_id]
            self._figures.end_request(num_tokens)
        raise EngineError(f"the engine ended a prompt of {len(token_ids)} tokens without an answer")


def sampling_params(request: GenerateRequest) -> SamplingParams:
    """Return vLLM's own form of a request; ValueError where it would not take it."""
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
