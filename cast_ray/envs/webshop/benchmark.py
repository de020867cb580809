"""WebShop as a ``Benchmark``: its sets of tasks, and episodes of them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cast_ray.envs.environment import BenchmarkTier, Environment
from cast_ray.envs.text_env import LOST, SOLVED, BudgetedEpisode
from cast_ray.envs.webshop.catalogue import Catalogue
from cast_ray.envs.webshop.catalogue_build import (
    NUM_SYNTHETIC_GOALS,
    catalogue_file,
    find_data_files,
)
from cast_ray.envs.webshop.goals import HUMAN, SYNTHETIC, Goal
from cast_ray.envs.webshop.products import json_object, member, text
from cast_ray.envs.webshop.reward import reward
from cast_ray.envs.webshop.shop import Shop, Visit, page_text, spaced
from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games.game import Effect, ParseFailure
from cast_ray.games.puzzles import Puzzle
from cast_ray.games.text import last_fenced_block
from cast_ray.games.wording import GameWording

RULES = (
    "You shop in a shop of many products. Buy one product that fits the instruction: its kind, "
    "every property and every option that is named (such as colour or size), and the price. One "
    "action a turn: search[words] shows the products that these words find, from any page; "
    "click[name] clicks one of the names in brackets after Clickable. A product's number opens "
    "its page. There, click each option that you want: it is not selected by itself. buy now buys "
    "the product with the selected options and ends everything. Think, then end with the action "
    "between two fences of three backticks, for example ```search[blue cotton socks]``` or "
    "```click[buy now]```."
)
FEW_PRODUCTS = 5000
"""Up to this many, a search takes at most a few milliseconds."""

_EXPECTED = "End with ```search[words]``` or ```click[name]```."
_ACTION = re.compile(r"(search|click)\s*\[(.*)\]", re.IGNORECASE | re.DOTALL)
_MOST_QUERY_WORDS = 24
_LONGEST_NAME = 80


class ShoppingTrip(BudgetedEpisode):
    """An episode: one instruction, one purchase."""

    rules = RULES

    def __init__(self, catalogue: Catalogue, goal: Goal, *, turn_budget: int) -> None:
        """Prepare an episode that begins with ``start``; ``close`` closes the catalogue.

        Args:
            catalogue: the products; used by this episode alone.
            goal: what to buy.
            turn_budget: turns, >= 1.
        """
        super().__init__(turn_budget=turn_budget)
        self.is_slow = catalogue.num_products > FEW_PRODUCTS
        self._catalogue = catalogue
        self._shop = Shop(catalogue)
        self._goal = goal
        self._visit = Visit()

    def state(self) -> str:
        """See ``Environment``."""
        return page_text(self._shop, self._visit)

    def choices(self) -> tuple[str, ...]:
        """Return the possible clicks; on the search page a search for the instruction's words."""
        names = (*self._shop.buttons(self._visit), *self._shop.options(self._visit))
        if names:
            return tuple(f"click[{name}]" for name in names)
        words = re.findall(r"[^\W_]+", self._goal.instruction.lower())
        return (f"search[{' '.join(words[:_MOST_QUERY_WORDS]) or 'product'}]",)

    def close(self) -> None:
        """See ``Environment``."""
        self._catalogue.close()

    def _begin(self) -> None:
        self._visit = Visit()

    def _carry_out(self, answer: str) -> tuple[str, Effect, str]:
        parsed = parse(answer)
        if isinstance(parsed, ParseFailure):
            return "", Effect.INVALID, parsed.feedback
        verb, argument = parsed
        action = f"{verb}[{argument}]"
        if verb == "search":
            after = self._shop.search(argument)
        else:
            after = self._shop.click(self._visit, argument)
        if after is None:
            shown = argument if len(argument) <= _LONGEST_NAME else f"{argument[:_LONGEST_NAME]}…"
            return action, Effect.ILLEGAL, f"There is no [{shown}] to click here."
        if after == self._visit:
            return action, Effect.INEFFECTIVE, f"{action}: nothing has changed."
        self._visit = after
        return action, Effect.CHANGED, ""

    def _ending(self) -> tuple[str, float]:
        if not self._visit.is_bought:
            return "", 0.0
        earned = reward(
            self._shop.product(self._visit),
            [value for _, value in self._visit.chosen],
            goal=self._goal,
            wanted=self._catalogue.product(self._goal.asin),
        )
        return SOLVED if earned == 1 else LOST, earned

    def _shown(self) -> list[str]:
        return [f"Instruction: {spaced(self._goal.instruction)}", self.state()]


def parse(answer: str) -> tuple[str, str] | ParseFailure:
    """Return verb and argument, lower case with single spaces, of the last fenced block."""
    content = last_fenced_block(answer)
    if content is None:
        return ParseFailure(feedback=f"No action found. {_EXPECTED}")
    match = _ACTION.fullmatch(content)
    argument = spaced(match[2].lower()) if match else ""
    if match is None or not argument:
        return ParseFailure(feedback=f"Unknown action. {_EXPECTED}")
    return match[1].lower(), argument


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
"""The first three are the original's splits. The last one is what the reference evaluates among
the 1,000 products; the paper's case study (app:webshop_case) plays one of these."""


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
