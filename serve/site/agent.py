"""The trained agent; it plays with the code that it was trained with."""

from __future__ import annotations

from dataclasses import dataclass

from cast_ray.config.train import RolloutConfig
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.episode import EpisodeSpec, Sampling, Watch, play_episode
from cast_ray.rollout.generate import Generate


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A policy with its tokenizer. Belongs to the event loop of its ``generate``."""

    model: str
    """Name for users."""
    tokenizer: ChatTokenizer
    generate: Generate
    limits: RolloutConfig
    """Of answers and conversations, as in training; nothing else of the section is used."""
    conversation_tokens: int
    """Most tokens of prompt and response together."""

    async def play(
        self, puzzle: Puzzle, *, turn_budget: int, temperature: float, seed: int, watch: Watch
    ) -> None:
        """Play an episode; ``watch`` sees every turn.

        Raises:
            CastRayError: the board does not fit the limits, or no engine answers.
        """
        spec = EpisodeSpec(puzzle=puzzle, turn_budget=turn_budget, seed=seed)
        sampling = Sampling(
            temperature=temperature,
            top_p=1.0,
            max_answer_tokens=self.limits.max_answer_tokens,
            prompt_tokens=self.limits.prompt_tokens,
            response_tokens=self.limits.response_tokens,
            conversation_tokens=self.conversation_tokens,
            truncated="skip",
        )
        await play_episode(
            spec,
            tokenizer=self.tokenizer,
            generate=self.generate,
            sampling=sampling,
            is_dead=None,  # the watcher asks the analyst, in another process
            watch=watch,
        )
