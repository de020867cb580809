"""One policy engine: vLLM's AsyncLLM with exact tokens, a weight version and a health check.

Knows no Ray; ``serve.engine.deployment`` hosts it in a Serve replica. What it promises:

* A completion's logprobs are those of the unmodified distribution (temperature 1, nothing cut
  off), however the answer was sampled: vLLM's ``raw_logprobs`` mode, set explicitly.
* The model's own ``generation_config`` is ignored: it may hold a top-p that falsifies ratios.
* Its weights are the version it names, checked layer by layer; see ``EngineWeights``.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from typing import cast

from vllm import SamplingParams
from vllm.distributed.weight_transfer.base import WeightTransferInitRequest
from vllm.exceptions import VLLMClientError, VLLMError
from vllm.inputs.engine import tokens_input
from vllm.logprobs import FlatLogprobs, Logprob
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from cast_ray.errors import EngineError
from cast_ray.rollout.generate import Completion, GenerateRequest, Refusal
from serve.engine.answers import answers_as_done
from serve.engine.overheard import Overheard
from serve.engine.stats import EngineFigures, check_progress
from serve.engine.vllm_start import start_vllm
from serve.engine.weight_update import EngineWeights, TokenVersions
from serve.messages import EngineOptions, EngineStats


class PolicyEngine:
    """A vLLM engine on this machine; ``PolicyEngine.start`` makes one.

    ``weights`` updates what it computes with.
    """

    def __init__(
        self, llm: AsyncLLM, heard: Overheard, figures: EngineFigures, options: EngineOptions
    ) -> None:
        self.weights = EngineWeights(llm, figures, update_timeout_s=options.engine.update_timeout_s)
        self._llm = llm
        self._heard = heard
        self._figures = figures
        self._options = options
        self._num_vocabulary = llm.model_config.get_vocab_size()
        self._request_ids = itertools.count()

    @classmethod
    async def start(cls, options: EngineOptions) -> PolicyEngine:
        """Start vLLM's processes, load the model and answer a first request.

        Raises:
            EngineError: vLLM does not start, or its first request kills it.
            ModelError: a file of the model is missing or damaged.
        """
        figures = EngineFigures()
        engine = cls(*start_vllm(options, figures), figures, options)
        await engine._llm.init_weight_transfer_engine(WeightTransferInitRequest())
        await engine._probe()
        return engine

    @property
    def is_dead(self) -> bool:
        """Whether a process of vLLM has died."""
        return self._llm.errored

    @property
    def cause_of_death(self) -> str:
        """The first error that vLLM's processes wrote shortly before one of them died."""
        return self._heard.cause_of_death

    @property
    def stats(self) -> EngineStats:
        """Totals up to now, running requests included."""
        return self._figures.stats(self.weights.version)

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> AsyncIterator[list[tuple[int, Completion | Refusal]]]:
        """Answer requests, each as soon as it is done; see ``answers_as_done``.

        Raises:
            EngineError: vLLM failed, or the weights that a request needs did not arrive; the other
                requests of this call are cancelled.
            WeightSyncError: the last update failed and none has succeeded since.
        """
        async for batch in answers_as_done(requests, self.answer):
            yield batch

    async def answer(self, request: GenerateRequest) -> Completion | Refusal:
        """Answer one request. Raises as ``generate`` does."""
        try:
            params = sampling_params(request)
            self._check_tokens(request.token_ids)
            await self.weights.admit(request.min_weight_version)
            output, versions = await self._run(request.token_ids, params)
        except (VLLMClientError, ValueError) as error:
            self._figures.counted.num_refused += 1
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

        Computed from the engine's present weights, never from the prefix cache.
        """
        params = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
        await self.weights.admit(self.weights.version)
        try:
            output, _ = await self._run(token_ids, params)
        except VLLMClientError as error:
            raise EngineError(f"cannot score {len(token_ids)} tokens: {error}") from error
        positions = cast(list[dict[int, Logprob]], output.prompt_logprobs)  # the first is None
        return tuple(
            position[token].logprob
            for position, token in zip(positions[1:], token_ids[1:], strict=True)
        )

    async def check_health(self) -> None:
        """Return, within the probe's time-out, if the engine can answer.

        Does not ask it during a weight update, while it waits for one to succeed, or rests.

        Raises:
            EngineError: a process of vLLM died, or the engine is stalled.
        """
        if self._llm.errored:
            raise EngineError(f"a process of the vLLM engine died: {self.cause_of_death}")
        if self.weights.stall:
            raise EngineError(self.weights.stall)
        await check_progress(
            self._figures,
            self._probe,
            is_suspended=lambda: self.weights.is_suspended,
            stall_timeout_s=self._options.stall_timeout_s,
            probe_timeout_s=self._options.probe_timeout_s,
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
            raise EngineError(f"the engine did not answer a probe: {self._why(error)}") from error

    def _why(self, error: Exception) -> str:
        # The message of a dead core is that the reason is elsewhere.
        return self.cause_of_death if isinstance(error, EngineDeadError) else str(error)

    def _check_tokens(self, token_ids: Sequence[int]) -> None:
        # vLLM relies on the tokenizer, which it does not have here; an id out of range would kill
        # the core.
        for token in (min(token_ids, default=0), max(token_ids, default=0)):
            if not 0 <= token < self._num_vocabulary:
                raise ValueError(f"token id {token} is not in 0 .. {self._num_vocabulary - 1}")

    async def _run(
        self, token_ids: Sequence[int], params: SamplingParams
    ) -> tuple[RequestOutput, TokenVersions]:
        # The salt keeps a new request from finding a prefix that older weights computed, also
        # when requests in flight keep the cache from being reset.
        prompt = tokens_input(list(token_ids), cache_salt=str(self.weights.version))
        request_id = str(next(self._request_ids))
        self._figures.begin_request()
        num_tokens = 0
        try:
            with self.weights.versions_of(request_id) as versions:
                async for output in self._llm.generate(prompt, params, request_id):
                    if output.finished:
                        num_tokens = len(output.outputs[0].token_ids)
                        return output, versions
        except VLLMClientError:
            raise
        except (EngineDeadError, EngineGenerateError, VLLMError) as error:
            if isinstance(error.__cause__, ValueError):  # raised before the core was asked
                raise error.__cause__ from None
            raise EngineError(
                f"the engine did not answer a prompt of {len(token_ids)} tokens: {self._why(error)}"
            ) from error
        finally:
            self._figures.end_request(num_tokens)
        raise EngineError(f"the engine ended a prompt of {len(token_ids)} tokens without an answer")


def sampling_params(request: GenerateRequest) -> SamplingParams:
    """Return vLLM's sampling parameters of a request; ValueError if vLLM would refuse them."""
    return SamplingParams(
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=0,
        min_p=0.0,
        seed=request.seed,
        stop_token_ids=list(request.stop_token_ids),
        ignore_eos=True,  # only the request says where an answer ends, not the model
        logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,
    )
