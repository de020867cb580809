"""One shopping trip as an ``Environment``."""

from __future__ import annotations

import re

from cast_ray.envs.environment import EnvironmentTurn
from cast_ray.envs.text_env import LOST, SOLVED, TURN_BUDGET
from cast_ray.envs.webshop.catalogue import Catalogue
from cast_ray.envs.webshop.goals import Goal
from cast_ray.envs.webshop.reward import reward
from cast_ray.envs.webshop.shop import Shop, Visit, page_text, spaced
from cast_ray.games.game import Effect, ParseFailure
from cast_ray.games.text import last_fenced_block

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


class ShoppingTrip:
    """An episode: one instruction, one purchase."""

    rules = RULES

    def __init__(self, catalogue: Catalogue, goal: Goal, *, turn_budget: int) -> None:
        """Prepare an episode that begins with ``start``; ``close`` closes the catalogue.

        Args:
            catalogue: the products; used by this episode alone.
            goal: what to buy.
            turn_budget: turns, >= 1.
        """
        if turn_budget < 1:
            raise ValueError(f"turn_budget must be >= 1, got {turn_budget}")
        self.is_slow = catalogue.num_products > FEW_PRODUCTS
        self._catalogue = catalogue
        self._shop = Shop(catalogue)
        self._goal = goal
        self._turn_budget = turn_budget
        self._steps_left = 0
        self._visit = Visit()

    def start(self) -> str:
        """See ``Environment``."""
        self._steps_left = self._turn_budget
        self._visit = Visit()
        return self._message("")

    def state(self) -> str:
        """See ``Environment``."""
        return page_text(self._shop, self._visit)

    def step(self, answer: str) -> EnvironmentTurn:
        """See ``Environment``.

        Raises:
            RuntimeError: there is no episode, or it has ended.
        """
        if not self._steps_left or self._visit.is_bought:
            raise RuntimeError("the episode has ended or never began: call start first")
        self._steps_left -= 1
        parsed = parse(answer)
        if isinstance(parsed, ParseFailure):
            return self._turn("", Effect.INVALID, parsed.feedback)
        verb, argument = parsed
        action = f"{verb}[{argument}]"
        after = self._after(verb, argument)
        if after is None:
            shown = argument if len(argument) <= _LONGEST_NAME else f"{argument[:_LONGEST_NAME]}…"
            return self._turn(action, Effect.ILLEGAL, f"There is no [{shown}] to click here.")
        if after == self._visit:
            return self._turn(action, Effect.INEFFECTIVE, f"{action}: nothing has changed.")
        self._visit = after
        return self._turn(action, Effect.CHANGED, "")

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

    def _after(self, verb: str, argument: str) -> Visit | None:
        """Return where an action leads; None if the page does not have it."""
        if verb == "search":
            return self._shop.search(argument)
        return self._shop.click(self._visit, argument)

    def _turn(self, action: str, effect: Effect, feedback: str) -> EnvironmentTurn:
        """Return the turn that led to the present visit."""
        earned = self._earned() if self._visit.is_bought else 0.0
        end_reason = "" if self._steps_left else TURN_BUDGET
        if self._visit.is_bought:
            end_reason = SOLVED if earned == 1 else LOST
        return EnvironmentTurn(
            action=action,
            effect=effect,
            state=self.state(),
            feedback=feedback,
            message="" if end_reason else self._message(feedback),
            end_reason=end_reason,
            reward=earned,
        )

    def _earned(self) -> float:
        """Return the reward of the purchase."""
        return reward(
            self._shop.product(self._visit),
            [value for _, value in self._visit.chosen],
            goal=self._goal,
            wanted=self._catalogue.product(self._goal.asin),
        )

    def _message(self, feedback: str) -> str:
        """Return the feedback line, if any, the instruction, the page and the steps left."""
        lines = [feedback] if feedback else []
        lines += [f"Instruction: {spaced(self._goal.instruction)}", self.state()]
        return "\n".join([*lines, f"Steps left: {self._steps_left}"])


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
