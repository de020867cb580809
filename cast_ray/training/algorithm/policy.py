"""A run's present policy, to act on boards of one's own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cast_ray.envs.registry import is_benchmark, tier_of
from cast_ray.games import get_game
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout import specs
from cast_ray.rollout.episode import EpisodeSpec, play_episode
from cast_ray.rollout.trajectory import Trajectory
from cast_ray.timeouts import answer_within
from serve.client.applications import engine_names
from serve.client.client import connect_policy

if TYPE_CHECKING:
    from cast_ray.training.session import TrainingSession


class Policy:
    """Plays with a run's engines, as in its evaluations; lives as long as the run's parts."""

    def __init__(self, session: TrainingSession) -> None:
        self._session = session

    def act(self, board: str, *, seed: int = 0) -> str:
        """Return the policy's action on a board, in the game's spelling; empty = none was read.

        Raises:
            PuzzleError: the board cannot be read.
        """
        return self.play(board, turn_budget=1, seed=seed).actions[0]

    def play(self, board: str, *, turn_budget: int | None = None, seed: int = 0) -> Trajectory:
        """Play a board to the end.

        Args:
            board: as in a puzzle file.
            turn_budget: most turns; None = the tier's.
            seed: with the same weights it gives the same episode.

        Raises:
            PuzzleError: the board cannot be read.
            RemoteTimeout: the engines did not answer within ``rollout.timeout_s``.
        """
        run, workers = self._session.run, self._session.workers
        config = run.config
        if not is_benchmark(config.game):
            game = get_game(config.game)
            board = game.encode(game.decode(board))
        spec = EpisodeSpec(
            step=self._session.loop.steps_done,
            puzzle=Puzzle(game=config.game, tier=config.tier, puzzle_id="given", board=board),
            turn_budget=turn_budget or tier_of(config.game, config.tier).turn_budget,
            seed=seed,
        )

        async def played() -> Trajectory:
            engine = config.engine
            generate = connect_policy(
                engine_names(run.run_id, config.resources.engines),
                slots_per_engine=1,
                timeout_s=engine.request_timeout_s,
                recovery_timeout_s=engine.start_timeout_s,
            )
            return await play_episode(
                spec,
                tokenizer=workers.tokenizer,
                generate=generate,
                sampling=specs.evaluation_sampling(config),
                is_dead=None,
            )

        # In a thread: a notebook's own event loop is running.
        return answer_within(config.rollout.timeout_s, lambda: asyncio.run(played()), name="policy")
