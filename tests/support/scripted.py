"""An engine's double that answers by a rule, and a small real policy directory for its tokens."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cast_ray.config.train import PolicyConfig
from cast_ray.games.sokoban import ACTIONS, SYMBOLS, Sokoban
from cast_ray.learner.small_policy import build_small_policy
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import ChatPieces, read_chat_pieces
from cast_ray.rollout.episode import EpisodeSpec, Sampling, play_episode
from cast_ray.rollout.generate import Completion, Generate, GenerateRequest, Lane
from cast_ray.rollout.trajectory import Trajectory
from solver_actors.sokoban.table import solve_sokoban

GAME = Sokoban()
CORPUS = [
    GAME.rules,
    "system\nuser\nassistant\n",
    *(f"```{action}```" for action in ACTIONS),
    GAME.observe(GAME.decode("######\n#P___#\n#_X__#\n#__O_#\n######")) + "\nSteps left: 12",
] * 4
LOGPROB = -0.5
"""Of every token the double writes."""


def build_test_policy(directory: Path, *, seed: int = 0, head_dim: int = 16) -> ChatTokenizer:
    """Write a tiny model directory whose tokenizer knows Sokoban, and return that tokenizer.

    vLLM on CPU wants a ``head_dim`` of 32.
    """
    build_small_policy(
        directory,
        PolicyConfig(
            vocab_size=512,
            hidden_size=16,
            intermediate_size=16,
            num_layers=1,
            num_heads=1,
            num_kv_heads=1,
            sliding_window=0,
            head_dim=head_dim,
        ),
        corpus=CORPUS,
        cells=SYMBOLS,
        max_position_embeddings=4096,
        seed=seed,
    )
    return ChatTokenizer(directory, read_chat_pieces(directory))


class ScriptedPolicy:
    """Answers with the text that a function gives for a request; stands in for the engine."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        answer: Callable[[GenerateRequest], str],
        *,
        version: int = 1,
    ) -> None:
        self._tokenizer = tokenizer
        self._answer = answer
        self._version = version
        self.requests: list[GenerateRequest] = []

    async def __call__(self, request: GenerateRequest, lane: Lane) -> Completion:
        """Write the answer, cut off where the request says."""
        self.requests.append(request)
        written = self._tokenizer.answer(self._answer(request))
        ids = tuple(written[: request.max_tokens])
        return Completion(
            token_ids=ids,
            rollout_logprobs=(LOGPROB,) * len(ids),
            finish_reason="stop" if len(ids) == len(written) else "length",
            weight_versions=(self._version,) * len(ids),
        )


def in_turn(*answers: str) -> Callable[[GenerateRequest], str]:
    """Return a rule that gives these answers one after the other, the last one for ever."""
    left = list(answers)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


def mixed_play(tokenizer: ChatTokenizer) -> Callable[[GenerateRequest], str]:
    """Return a rule that reads the board and plays it well, badly, not at all, or too long."""

    def answer(request: GenerateRequest) -> str:
        rng = np.random.default_rng(request.seed)
        kinds = ["best", "worst", "random", "nonsense", "long"]
        kind = rng.choice(kinds, p=[0.55, 0.15, 0.2, 0.07, 0.03])
        if kind == "nonsense":
            return "Up"
        if kind == "long":
            return "```Up``` " * 20
        if kind == "random":
            return f"```{rng.choice(ACTIONS)}```"
        text = tokenizer.text(request.token_ids)
        board = text.rpartition("Board:\n")[2].partition("\nSteps left")[0]
        state = GAME.decode(board)
        costs = solve_sokoban(state).action_costs(state)
        choose = min if kind == "best" else max
        return f"```{choose(costs, key=costs.__getitem__)}```"

    return answer


def play(
    spec: EpisodeSpec,
    policy: Generate,
    tokenizer: ChatTokenizer,
    *,
    response_tokens: int = 4000,
    prompt_tokens: int = 2048,
    conversation_tokens: int = 20000,
    max_answer_tokens: int = 16,
    ends_dead: bool = True,
    truncated: str = "skip",
) -> Trajectory:
    """Play one episode with the double."""
    solver = solve_sokoban(GAME.decode(spec.puzzle.board))
    return asyncio.run(
        play_episode(
            spec,
            tokenizer=tokenizer,
            generate=policy,
            sampling=Sampling(
                temperature=1.0,
                top_p=1.0,
                max_answer_tokens=max_answer_tokens,
                prompt_tokens=prompt_tokens,
                response_tokens=response_tokens,
                conversation_tokens=conversation_tokens,
                truncated=truncated,
            ),
            is_dead=solver.is_dead if ends_dead else None,
        )
    )


def scripted_engine(
    model_dir: str, pieces: ChatPieces, latency_s: float, number: int = 0
) -> Generate:
    """Return a double for actors that plays the mixed rule and takes ``latency_s`` an answer."""
    tokenizer = ChatTokenizer(Path(model_dir), pieces)
    policy = ScriptedPolicy(tokenizer, mixed_play(tokenizer))

    async def generate(request: GenerateRequest, lane: Lane) -> Completion:
        await asyncio.sleep(latency_s)
        return await policy(request, lane)

    return generate


def silent_engine(
    model_dir: str, pieces: ChatPieces, latency_s: float, number: int = 0
) -> Generate:
    """Return a double that never names an action."""
    return ScriptedPolicy(ChatTokenizer(Path(model_dir), pieces), in_turn("I pass."))


def deadly_engine(
    model_dir: str, pieces: ChatPieces, latency_s: float, number: int = 0
) -> Generate:
    """Return a double that ends the process of whoever asks it."""

    async def generate(request: GenerateRequest, lane: int) -> Completion:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still there")

    return generate
