"""The weights that an engine computes with: their version, their updates, and who waits for them.

After an update every layer has been compared with what was sent, or the engine refuses to generate
until an update succeeds. Requests in flight over an update keep the keys and values of the old
weights and finish with the new ones; which weights wrote which of their tokens is recorded here.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm import envs
from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest
from vllm.v1.engine.async_llm import AsyncLLM

from cast_ray.errors import EngineError, TransferBroken, WeightSyncError
from cast_ray.weights.manifest import WeightManifest
from serve.engine.stats import EngineFigures
from serve.messages import WeightReceipt
from serve.weights.receipts import WeightRoute, collect_receipts, discard_receipts

_DEATH_KNOWN_S = 2.0
"""vLLM notices a dead process at most this long after a call to it has failed."""


@dataclass(slots=True)
class TokenVersions:
    """The versions of one answer's tokens while it is being written."""

    first: int
    """The engine's version when the request was handed to vLLM."""
    changes: list[tuple[int, int]] = field(default_factory=list)
    """(tokens written before the change, version after it), in order of time."""

    def of_tokens(self, num_tokens: int) -> tuple[int, ...]:
        """Return ``[num_tokens]`` versions."""
        versions: list[int] = []
        version = self.first
        for num_before, after in self.changes:
            versions += [version] * (num_before - len(versions))
            version = after
        return (*versions, *[version] * (num_tokens - len(versions)))


class EngineWeights:
    """The weights of one vLLM engine, which starts with version 0."""

    def __init__(self, llm: AsyncLLM, figures: EngineFigures, *, update_timeout_s: float) -> None:
        """Take a running vLLM.

        Args:
            llm: the engine.
            figures: of the engine.
            update_timeout_s: longest wait of a request for newer weights.
        """
        self._llm = llm
        self._figures = figures
        self._update_timeout_s = update_timeout_s
        self._version = 0
        self._distrust = ""
        self._stall = ""
        self._is_updating = False
        self._is_resting = False
        self._update_lock = asyncio.Lock()
        self._update_ended = asyncio.Event()
        self._in_flight: dict[str, TokenVersions] = {}

    @property
    def version(self) -> int:
        """The version that new requests are answered with."""
        return self._version

    @property
    def stall(self) -> str:
        """Why the engine must be restarted: an update did not end in time; empty if none."""
        return self._stall

    @property
    def is_suspended(self) -> bool:
        """Whether the engine may be silent: it updates, rests, or waits for trusted weights."""
        return self._is_updating or self._is_resting or bool(self._distrust)

    async def update(
        self, manifest: WeightManifest, *, timeout_s: float, route: WeightRoute | None = None
    ) -> WeightReceipt:
        """Change to a published version, prove it, and resume the requests in flight.

        Tensors that are refused leave the engine as it was.

        Args:
            manifest: of the version; its folder is on this host.
            timeout_s: for the complete update.
            route: where the learner broadcasts the tensors; None = read the file.

        Raises:
            TransferBroken: the broadcast was interrupted; the engine is as it was.
            WeightSyncError: the tensors are not what was published, or a layer does not hold what
                was sent. After the latter the engine answers nothing until an update succeeds.
            EngineError: a process of vLLM died; or the update took longer than ``timeout_s``, which
                makes the engine unhealthy.
        """
        # Shielded: vLLM would be left half-way if the caller went away.
        work = self._update_alone(manifest, timeout_s, route=route)
        receipt = await asyncio.shield(asyncio.create_task(work))
        assert receipt is not None
        return receipt

    async def take_newer(self, manifest: WeightManifest, *, timeout_s: float) -> None:
        """Do as ``update`` if the version is still newer than the engine's when its turn comes."""
        work = self._update_alone(manifest, timeout_s, only_newer=True)
        await asyncio.shield(asyncio.create_task(work))

    async def rest(self) -> None:
        """Give the GPU's memory to the learner: weights go to the host, prefixes are dropped.

        Requests that arrive meanwhile wait for ``wake``.
        """
        async with self._update_lock:
            if not self._is_resting:
                self._is_resting = True
                await self._llm.sleep(level=1, mode="keep")

    async def wake(self) -> None:
        """Take the memory back and resume; does nothing if the engine is awake."""
        async with self._update_lock:
            await self._wake_up()

    async def admit(self, min_version: int) -> None:
        """Return when a request may be handed to vLLM: no update runs, the weights are new enough.

        A request that arrives during an update would find the prefixes of the old weights.

        Raises:
            WeightSyncError: the weights are not trusted.
            EngineError: no weights arrived that are new enough, or the engine must be restarted.
        """
        deadline = time.monotonic() + self._update_timeout_s
        while self._is_updating or (not self._distrust and self._version < min_version):
            # An update has a limit of its own.
            left_s = None if self._is_updating else max(0.0, deadline - time.monotonic())
            try:
                async with asyncio.timeout(left_s):
                    await self._update_ended.wait()
            except TimeoutError as error:
                raise EngineError(
                    f"the engine has weights of version {self._version}, and version "
                    f"{min_version}, which a request needs, did not arrive within "
                    f"{self._update_timeout_s} s; see whether weight updates reach it"
                ) from error
        if self._llm.errored or self._stall:
            # Not an error of the weights: another engine, or this one's successor, may answer.
            raise EngineError(self._stall or "a process of the vLLM engine died; see its log")
        if self._distrust:
            raise WeightSyncError(
                f"the engine's weights are not trusted because {self._distrust}; send weights again"
            )

    @contextmanager
    def versions_of(self, request_id: str) -> Iterator[TokenVersions]:
        """Record the versions of a request's tokens while it is in vLLM."""
        self._in_flight[request_id] = versions = TokenVersions(first=self._version)
        try:
            yield versions
        finally:
            del self._in_flight[request_id]

    async def _update_alone(
        self,
        manifest: WeightManifest,
        timeout_s: float,
        *,
        only_newer: bool = False,
        route: WeightRoute | None = None,
    ) -> WeightReceipt | None:
        async with self._update_lock:
            if only_newer and manifest.version <= self._version:
                return None
            receipt_path = Path(f"{manifest.path}.receipt-{uuid.uuid4().hex}")
            update = {"manifest": manifest.to_json(), "receipt_path": str(receipt_path)}
            if route is not None:
                update |= route.update_fields(timeout_s)
            await self._wake_up()
            async with self._updating():
                try:
                    async with asyncio.timeout(timeout_s):
                        return await self._update(manifest, receipt_path, update)
                except TimeoutError as error:
                    self._distrust = f"its update to version {manifest.version} was not finished"
                    self._stall = f"the engine did not load {manifest.path} within {timeout_s} s"
                    raise EngineError(f"{self._stall}; it is ended and started again") from error
                finally:
                    discard_receipts(receipt_path)

    @asynccontextmanager
    async def _updating(self) -> AsyncIterator[None]:
        """Hold new requests back, and let them in afterwards."""
        self._is_updating = True
        try:
            yield
        finally:
            self._is_updating = False
            self._figures.note_progress()
            self._update_ended.set()
            self._update_ended = asyncio.Event()

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
            # Ends the update in every worker, also if one of them refused it.
            version = str(manifest.version) if is_right else None
            await self._llm.finish_weight_update(weight_version=version)
        if is_right:
            await self._change_version(manifest.version)
            self._distrust = ""
        elif failure is not None or receipt.is_changed:
            self._distrust = f"its update to version {manifest.version} failed"
        if not self._distrust:
            # Frees the blocks if nothing is in flight. Never relied upon: with a request in flight
            # vLLM resets nothing and only logs it; hence the prompts' ``cache_salt``.
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
        """Return whether an update failed by the death of a process, which vLLM may notice late."""
        deadline = time.monotonic() + (_DEATH_KNOWN_S if failure is not None else 0.0)
        while not self._llm.errored and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        return self._llm.errored

    async def _change_version(self, version: int) -> None:
        """Record, while generation is paused, up to which token the old weights have written."""
        written = await tokens_written(self._llm)
        self._version = version
        for request_id, versions in self._in_flight.items():
            # A request that has ended, unseen by its task so far, writes no more tokens.
            if request_id in written:
                versions.changes.append((written[request_id], version))

    async def _wake_up(self) -> None:
        if self._is_resting:
            await self._llm.wake_up()
            self._is_resting = False
            self._figures.note_progress()


async def tokens_written(llm: AsyncLLM) -> dict[str, int]:
    """Return how many tokens each unfinished request has, by the id it was handed over with.

    Exact, but only while generation is paused. Answers arrive complete, so this process does not
    see single tokens. The core acknowledges the pause on the socket that carries the tokens, after
    the last of them, and the reader of that socket puts tokens into ``outputs_queue`` before it
    reads on; so all tokens are in that queue or taken from it. The consumer processes a step's
    answers in chunks, and yields to other tasks once between two chunks. So once the queue is
    empty, as many turns of the event loop as a step has chunks are enough. A request that is
    missing from the result has ended.
    """
    while not llm.engine_core.outputs_queue.empty():
        await asyncio.sleep(0)
    for _ in range(llm.scheduler_config.max_num_seqs // envs.VLLM_V1_OUTPUT_PROC_CHUNK_SIZE + 1):
        await asyncio.sleep(0)
    states = llm.output_processor.request_states.values()
    return {
        state.external_req_id: state.detokenizer.num_output_tokens()
        for state in states
        if state.detokenizer is not None
    }
