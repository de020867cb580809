"""Which generated puzzles are kept: first a test set, then a training set.

Puzzles are offered in order of attempt and everything here depends on that order alone: not on how
many processes drew them, or in how many runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from cast_ray.errors import PuzzleError
from cast_ray.games.costs import EXACT
from cast_ray.games.puzzles import Puzzle

PATIENCE = 20_000
"""Attempts without a new puzzle after which no more are expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """How many puzzles to keep: the first ones for testing, some of those after them for training.

    The training fields never change the test set, so several training sets share one.
    """

    num_test: int
    num_train: int
    cost_range: tuple[int, int] | None = None
    """Least and largest exact cost of a training puzzle; None = any."""
    is_even: bool = False
    """Whether training puzzles are distributed evenly over the costs of ``cost_range``."""

    @property
    def num_wanted(self) -> int:
        """Return the size of both sets together."""
        return self.num_test + self.num_train


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Two sets, no two puzzles equal up to symmetry."""

    test: list[Puzzle]
    train: list[Puzzle]
    statement: str
    """One line: how the puzzles were divided, and what is missing and why."""
    is_short: bool
    """Whether there are fewer puzzles than requested."""


class PuzzleCollector:
    """Takes the result of each attempt, in order, until there are enough."""

    def __init__(
        self,
        rule: SplitRule,
        *,
        exclude: Set[str] = frozenset(),
        reserved: Set[str] = frozenset(),
        patience: int = PATIENCE,
    ) -> None:
        """Start empty.

        Args:
            rule: how many puzzles to keep.
            exclude: puzzle ids to leave out altogether.
            reserved: puzzle ids to leave out of the training set.
            patience: attempts without a new puzzle after which the collection ends.
        """
        self.num_attempts = 0
        self.puzzles: list[Puzzle] = []
        """All distinct puzzles so far, in order of attempt."""
        self.puzzle_ids: set[str] = set(exclude)
        self._rule = rule
        self._reserved = reserved
        self._patience = patience
        self._training = _TrainingSet(rule, reserved)
        self._last_new = 0  # attempts up to the last new puzzle, and to the last one of use
        self._last_of_use = 0

    def offer(self, puzzle: Puzzle | None) -> None:
        """Take the next attempt's puzzle; None if it gave none."""
        self.num_attempts += 1
        if puzzle is None or puzzle.puzzle_id in self.puzzle_ids:
            return
        self.puzzle_ids.add(puzzle.puzzle_id)
        self.puzzles.append(puzzle)
        self._last_new = self.num_attempts
        if len(self.puzzles) <= self._rule.num_test or self._training.take(puzzle):
            self._last_of_use = self.num_attempts

    @property
    def num_kept(self) -> int:
        """Return how many puzzles of both sets there are so far."""
        return min(len(self.puzzles), self._rule.num_test) + len(self._training.puzzles)

    @property
    def is_finished(self) -> bool:
        """Return whether there are enough, or no more are expected."""
        has_enough = self.num_kept == self._rule.num_wanted
        return has_enough or self.num_attempts - self._last_of_use >= self._patience

    def split(self) -> Split:
        """Return both sets; if too few puzzles exist, all of them in the requested proportion.

        Raises:
            PuzzleError: a requested set would be empty.
        """
        rule = self._rule
        num_test, num_all = rule.num_test, len(self.puzzles)
        no_more_exist = self.num_attempts - self._last_new >= self._patience
        is_share = no_more_exist and num_all < rule.num_wanted
        if is_share and num_test:
            num_test = max(1, round(num_all * rule.num_test / rule.num_wanted))
        training = _TrainingSet(rule, self._reserved)
        for puzzle in self.puzzles[num_test:]:
            training.take(puzzle)
        test = self.puzzles[:num_test]
        if (rule.num_test and not test) or (rule.num_train and not training.puzzles):
            raise PuzzleError(
                f"{self.num_attempts:,} attempts gave {len(test)} test and "
                f"{len(training.puzzles)} training puzzles: allow other costs or ask for fewer"
            )
        return Split(
            test=test,
            train=training.puzzles,
            statement=self._statement(len(test), len(training.puzzles), is_share=is_share),
            is_short=len(test) + len(training.puzzles) < rule.num_wanted,
        )

    def _statement(self, num_test: int, num_train: int, *, is_share: bool) -> str:
        rule = self._rule
        kind = "training puzzles"
        if rule.cost_range:
            kind += f" of exact cost {rule.cost_range[0]} to {rule.cost_range[1]}"
        if rule.is_even:
            kind += ", evenly over the costs"
        nothing_new = f"{self._patience:,} attempts brought no new one"
        if is_share:
            return (
                f"only {len(self.puzzles):,} of {rule.num_wanted:,} distinct puzzles exist as far "
                f"as {self.num_attempts:,} attempts show (the last {nothing_new}), divided "
                f"{rule.num_test}:{rule.num_train}: the first {num_test:,} in order of attempt "
                f"are test puzzles, the rest gave {num_train:,} {kind}"
            )
        statement = (
            f"the first {num_test:,} distinct puzzles in order of attempt are test puzzles, the "
            f"rest of {self.num_attempts:,} attempts gave {num_train:,} {kind}"
        )
        if num_train < rule.num_train:
            statement += f" of {rule.num_train:,} wanted ({nothing_new})"
        return statement


class _TrainingSet:
    """Training puzzles, taken one by one."""

    def __init__(self, rule: SplitRule, reserved: Set[str]) -> None:
        self.puzzles: list[Puzzle] = []
        self._num_wanted = rule.num_train
        self._cost_range = rule.cost_range
        self._reserved = reserved
        self._quotas = _quotas(rule) if rule.is_even else None

    def take(self, puzzle: Puzzle) -> bool:
        """Take a puzzle if it fits; return whether it did."""
        cost = puzzle.cost_to_go
        if len(self.puzzles) == self._num_wanted or puzzle.puzzle_id in self._reserved:
            return False
        if self._cost_range is not None:
            low, high = self._cost_range
            if cost is None or not low <= cost <= high:
                return False
        if self._quotas is not None:
            if cost is None or not self._quotas[cost]:
                return False
            self._quotas[cost] -= 1
        self.puzzles.append(puzzle)
        return True


def _quotas(rule: SplitRule) -> dict[int, int]:
    """Return the number of training puzzles of each cost; the lowest take the remainder."""
    if rule.cost_range is None:
        raise ValueError("an even training set needs a cost_range, got None")
    low, high = rule.cost_range
    each, remainder = divmod(rule.num_train, high - low + 1)
    return {cost: each + (cost - low < remainder) for cost in range(low, high + 1)}


def by_cost(puzzles: Iterable[Puzzle]) -> list[Puzzle]:
    """Return puzzles by exact cost, lowest first, others last; equal ones keep their order."""
    return sorted(puzzles, key=lambda p: p.cost if p.cost_status == EXACT else float("inf"))
