"""Groups that a bench keeps on their way: one that ends makes room for the next."""

from __future__ import annotations

import time
from pathlib import Path

from cast_ray.config import TrainConfig
from cast_ray.games import get_game
from cast_ray.generators import build_puzzles
from cast_ray.jobs.evaluate import episode_groups, training_sampling
from cast_ray.jobs.rollouts import RolloutCollector, Ticket
from cast_ray.jobs.start_solver import StartSolver
from cast_ray.jobs.warm_start import build_initial_model
from cast_ray.puzzles import Puzzle
from solver_actors.pool import RolloutPool

GROUP_SIZE = 8
_SEED = 0
_POLL_S = 0.01
MAX_TOKENS = 4096


class GroupStream:
    """Keeps a number of groups on their way and counts what came back."""

    def __init__(
        self, pool: RolloutPool, puzzles: list[Puzzle], folder: Path, *, num_groups: int
    ) -> None:
        """Make the folder; nothing is issued yet.

        Args:
            pool: plays them.
            puzzles: taken in order, again and again.
            folder: new; every group that ends is logged there.
            num_groups: on their way at any time.
        """
        self._collector = RolloutCollector(pool)
        self._puzzles = puzzles
        self._folder = folder
        self._num_groups = num_groups
        self._sampling = training_sampling(TrainConfig())
        self._out: list[Ticket] = []
        self._num_issued = 0
        self.num_finished = 0
        self.num_turns = 0
        """Of the groups that are finished."""
        self.num_bytes = 0
        """Of their record batches, as they came to this process."""
        folder.mkdir()

    def keep_up(self, seconds: float) -> None:
        """Issue a new group for each that ends, for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._top_up()
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Issue and collect no more."""
        self._collector.close()

    def _top_up(self) -> None:
        """Forget the groups that are finished, which are on disk, and send out as many new ones."""
        for ticket in self._out:
            if ticket.is_finished:
                self._count(ticket)
        self._out = [ticket for ticket in self._out if not ticket.is_finished]
        while len(self._out) < self._num_groups:
            puzzle = self._puzzles[self._num_issued % len(self._puzzles)]
            groups = episode_groups(
                [puzzle],
                attempts=GROUP_SIZE,
                step=0,
                seed=_SEED,
                purpose="bench",
                first_group=self._num_issued,
            )
            path = self._folder / f"group-{self._num_issued:06}.parquet"
            self._num_issued += 1
            self._out.append(
                self._collector.issue(groups, self._sampling, log_to=lambda _, p=path: p)
            )

    def _count(self, ticket: Ticket) -> None:
        self.num_finished += 1
        for batch in ticket.batches:
            self.num_turns += len(batch["turn_starts"].flatten())
            self.num_bytes += batch.nbytes


def puzzles_and_tokenizer(
    folder: Path, *, game: str, tier: str, count: int
) -> tuple[list[Puzzle], Path]:
    """Return puzzles of a tier, and a model's directory in ``folder``, for its tokenizer."""
    puzzles = build_puzzles(
        game=game, tier=tier, count=count, seed=_SEED, solve=StartSolver(game).cost
    )
    build_initial_model(
        folder / "model",
        game=game,
        turn_budget=get_game(game).tiers[tier].turn_budget,
        puzzles=puzzles,
        policy=TrainConfig().policy,
        max_tokens=MAX_TOKENS,
        seed=_SEED,
    )
    return puzzles, folder / "model"
