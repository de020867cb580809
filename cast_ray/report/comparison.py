"""The same held-out boards before and after training, board against board."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cast_ray.report.episodes import Episode, Evaluation, share_solved

_BOOTSTRAP_SAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What training changed, on boards that were played both times."""

    difference: float
    """Mean over boards of the share solved after minus before."""
    low: float
    """95% bootstrap interval of it, boards resampled in pairs."""
    high: float
    num_better: int
    """Boards solved more often than before."""
    num_same: int
    num_worse: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Showcase:
    """One puzzle, one attempt at it before and one after, and how they were chosen."""

    reason: str
    game: str
    before: Episode | None
    after: Episode | None


def gain(before: Evaluation, after: Evaluation, *, seed: int) -> Gain | None:
    """Return the change on the boards that both evaluations hold; None if there are none."""
    earlier, later = before.by_puzzle(), after.by_puzzle()
    both = [puzzle for puzzle in earlier if puzzle in later]
    if not both:
        return None
    change = np.array([share_solved(later[p]) - share_solved(earlier[p]) for p in both])
    draws = np.random.default_rng(seed).integers(0, len(both), (_BOOTSTRAP_SAMPLES, len(both)))
    low, high = np.percentile(change[draws].mean(axis=1), [2.5, 97.5])
    return Gain(
        difference=float(change.mean()),
        low=float(low),
        high=float(high),
        num_better=int((change > 0).sum()),
        num_same=int((change == 0).sum()),
        num_worse=int((change < 0).sum()),
    )


def choose_showcase(before: Evaluation | None, after: Evaluation | None) -> Showcase | None:
    """Return the games to show; None where no held-out game is stored.

    A board with a lost attempt before and a solved one after comes first: the one with the
    clearest contrast, of those the one furthest from its goal, of those the smallest id.
    """
    earlier = before.by_puzzle() if before else {}
    later = after.by_puzzle() if after else {}
    if not earlier or not later:
        return _only_one(earlier, later)
    both = [puzzle for puzzle in earlier if puzzle in later]
    turned = [
        puzzle
        for puzzle in both
        if share_solved(earlier[puzzle]) < 1 and share_solved(later[puzzle]) > 0
    ]
    if turned:
        chosen = min(turned, key=lambda puzzle: _contrast(earlier[puzzle], later[puzzle]))
        return _turned(earlier[chosen], later[chosen], num_turned=len(turned), num_boards=len(both))
    if not both:
        return _only_one(earlier, {})
    return Showcase(
        reason=(
            "No board was lost before training and solved after it, so this is simply the first "
            "held-out board, the first attempt each time."
        ),
        game=earlier[both[0]][0].game,
        before=earlier[both[0]][0],
        after=later[both[0]][0],
    )


def _contrast(earlier: list[Episode], later: list[Episode]) -> tuple[float, float, str]:
    first = earlier[0]
    contrast = share_solved(later) - share_solved(earlier)
    return (-contrast, -np.nan_to_num(first.costs[0], posinf=0.0), first.puzzle_id)


def _turned(
    earlier: list[Episode], later: list[Episode], *, num_turned: int, num_boards: int
) -> Showcase:
    num_lost = sum(not episode.is_solved for episode in earlier)
    num_solved = sum(episode.is_solved for episode in later)
    return Showcase(
        reason=(
            "Chosen for its contrast, not as a typical game: this board was lost in "
            f"{num_lost} of {len(earlier)} attempts before training and solved in {num_solved} of "
            f"{len(later)} after it. Shown are the first lost and the first solved attempt. "
            f"{num_turned} of the {num_boards} held-out boards have such a pair."
        ),
        game=earlier[0].game,
        before=next(episode for episode in earlier if not episode.is_solved),
        after=next(episode for episode in later if episode.is_solved),
    )


def _only_one(
    earlier: dict[str, list[Episode]], later: dict[str, list[Episode]]
) -> Showcase | None:
    if not earlier and not later:
        return None
    when, games = ("before", earlier) if earlier else ("after", later)
    first = next(iter(games.values()))[0]
    return Showcase(
        reason=(
            f"Only the games {when} training are stored, so nothing can be compared yet: this is "
            "the first held-out board, the first attempt."
        ),
        game=first.game,
        before=first if earlier else None,
        after=None if earlier else first,
    )
