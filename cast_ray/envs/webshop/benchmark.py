"""WebShop as a ``Benchmark``: its sets of tasks, and episodes of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from cast_ray.envs.environment import BenchmarkTier, Environment
from cast_ray.envs.webshop.catalogue import Catalogue
from cast_ray.envs.webshop.catalogue_build import (
    NUM_SYNTHETIC_GOALS,
    catalogue_file,
    find_data_files,
)
from cast_ray.envs.webshop.environment import ShoppingTrip
from cast_ray.envs.webshop.goals import HUMAN, SYNTHETIC, Goal
from cast_ray.envs.webshop.products import json_object, member, text
from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games.puzzles import Puzzle
from cast_ray.games.wording import GameWording

TURN_BUDGET = 30
"""The paper's; the original has no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalSet:
    """The goals of a tier: a slice of one kind, in the shuffled order."""

    kind: str
    places: slice


GOAL_SETS = {
    "test": GoalSet(kind=HUMAN, places=slice(0, 500)),
    "validation": GoalSet(kind=HUMAN, places=slice(500, 1500)),
    "train": GoalSet(kind=HUMAN, places=slice(1500, None)),
    "synthetic-test": GoalSet(kind=SYNTHETIC, places=slice(0, NUM_SYNTHETIC_GOALS)),
}
"""The first three are the original's splits. The paper's case study (app:webshop_case) plays a
synthetic goal among the 1,000 products."""


class Webshop:
    """The benchmark. Its data are needed only for puzzles and episodes."""

    name = "webshop"
    tiers: Mapping[str, BenchmarkTier] = {
        tier: BenchmarkTier(name=tier, turn_budget=TURN_BUDGET) for tier in GOAL_SETS
    }
    wording = GameWording(lost="bought something else", failure="wrong_purchase")

    def puzzles(self, tier: str) -> list[Puzzle]:
        """See ``Benchmark``.

        Raises:
            ConfigError: there is no such tier.
            PuzzleError: also if the data hold no goals of this tier, as 1,000 products may.
        """
        if tier not in GOAL_SETS:
            raise ConfigError(f"webshop has the tiers {', '.join(GOAL_SETS)}, not {tier!r}")
        goal_set = GOAL_SETS[tier]
        files = find_data_files()
        catalogue = Catalogue(catalogue_file(files))
        goals = catalogue.goals(goal_set.kind, goal_set.places)
        catalogue.close()
        if not goals:
            raise PuzzleError(
                f"{files.products} has no goals of the tier {tier} (from the {goal_set.kind} goal "
                f"{goal_set.places.start} on): give more products or take another tier"
            )
        return [_puzzle(tier, goal_set.kind, place, goal) for place, goal in goals]

    def environment(self, board: str, *, turn_budget: int) -> Environment:
        """See ``Benchmark``."""
        kind, place, asin, instruction = _named_goal(board)
        catalogue = Catalogue(catalogue_file(find_data_files()))
        goal = catalogue.goal(kind, place)
        if (goal.asin, goal.instruction) != (asin, instruction):
            raise PuzzleError(
                f"the {kind} goal {place} of the data here is {goal.instruction!r}, the puzzle's "
                f"is {instruction!r}: use the data that the puzzle was made of"
            )
        return ShoppingTrip(catalogue, goal, turn_budget=turn_budget)


def goal_id(goal: Goal) -> str:
    """Return 16 hexadecimal digits of what a goal asks for."""
    asked = [goal.asin, goal.instruction, goal.options, goal.attributes]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def _puzzle(tier: str, kind: str, place: int, goal: Goal) -> Puzzle:
    board = {
        "goal": kind,
        "place": place,
        "asin": goal.asin,
        "instruction": goal.instruction,
    }
    return Puzzle(game=Webshop.name, tier=tier, puzzle_id=goal_id(goal), board=json.dumps(board))


def _named_goal(board: str) -> tuple[str, int, str, str]:
    """Return kind, place, product and instruction of the goal that a board names."""
    where = "the board of a webshop puzzle"
    try:
        record = json_object(json.loads(board), where)
    except ValueError as error:
        raise PuzzleError(f"{where} is no JSON ({error}): take one that puzzles() gives") from error
    place = member(record, "place", where)
    if not isinstance(place, int) or place < 0:
        raise PuzzleError(f"{where}: 'place' must be a number >= 0, got {place!r}")
    return (
        text(record, "goal", where),
        place,
        text(record, "asin", where),
        text(record, "instruction", where),
    )
