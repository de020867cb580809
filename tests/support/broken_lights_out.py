"""Lights Out with one fault each, for tests that ask whether the checks notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cast_ray.errors import PuzzleError
from cast_ray.games.game import Effect, ParseFailure, Tier, Transition
from cast_ray.games.plugins import GamePlugin
from cast_ray.games.text import last_fenced_block
from lights_out.game import LightsOut, LightsOutState, generate_lights_out
from lights_out.solver import LIGHTS_OUT, LightsOutSolver
from solver_actors.solver import SolverEntry

State = LightsOutState


def with_game(game: LightsOut) -> GamePlugin:
    return replace(LIGHTS_OUT, game=game)


def with_solver(kind: Callable[[int, int], Any]) -> GamePlugin:
    def build(state: State) -> Any:
        return kind(state.rows, state.cols)

    return replace(LIGHTS_OUT, solver=replace(LIGHTS_OUT.solver, build=build))


class NoTiers(LightsOut):
    tiers = {}  # noqa: RUF012


class BudgetTooShort(LightsOut):
    tiers = {name: replace(t, turn_budget=3) for name, t in LightsOut.tiers.items()}  # noqa: RUF012


class ReadsDigits(LightsOut):
    """The parser asks ``isdigit``, which knows more digits than ``int`` reads."""

    def parse(self, answer: str) -> str | ParseFailure:
        words = (last_fenced_block(answer) or "").lower().split()
        if len(words) == 3 and words[0] == "press" and words[1].isdigit() and words[2].isdigit():
            return f"press {int(words[1])} {int(words[2])}"
        return ParseFailure(feedback="Unknown action.")


class ParsesMore(LightsOut):
    """The parser lets numbers through that ``apply`` refuses with an exception."""

    def parse(self, answer: str) -> str | ParseFailure:
        words = (last_fenced_block(answer) or "").lower().split()
        if len(words) == 3 and words[0] == "press" and (words[1] + words[2]).isascii():
            return " ".join(words)
        return ParseFailure(feedback="Unknown action.")


class KeepsSpelling(LightsOut):
    def parse(self, answer: str) -> str | ParseFailure:
        found = super().parse(answer)
        return found if isinstance(found, ParseFailure) else found.replace("press 0 ", "press 00 ")


class NeedsNoFence(LightsOut):
    def parse(self, answer: str) -> str | ParseFailure:
        found = super().parse(answer)
        return super().parse(f"```{answer}```") if isinstance(found, ParseFailure) else found


class Mutates(LightsOut):
    def apply(self, state: State, action: str) -> Transition[State]:
        after = super().apply(state, action)
        object.__setattr__(state, "lights", after.state.lights)
        return replace(after, state=state)


class Remembers(LightsOut):
    """Every seventh press does nothing to the neighbours."""

    num_presses = 0

    def apply(self, state: State, action: str) -> Transition[State]:
        Remembers.num_presses += 1
        after = super().apply(state, action)
        if Remembers.num_presses % 7 or after.effect is not Effect.CHANGED:
            return after
        return replace(after, state=replace(state, lights=state.lights ^ 1))


class Forgets(LightsOut):
    """The text of a board leaves its last light out."""

    def encode(self, state: State) -> str:
        return super().encode(state)[:-1] + "."


class CopiesState(LightsOut):
    """A press of the dark first cell does nothing, and returns an equal state."""

    def apply(self, state: State, action: str) -> Transition[State]:
        if action != "press 0 0" or state.lights & 1:
            return super().apply(state, action)
        return Transition(state=replace(state), effect=Effect.INEFFECTIVE, feedback="No light.")

    def scored_actions(self, state: State) -> tuple[str, ...]:
        return self.actions(state)[0 if state.lights & 1 else 1 :]


class SilentlyIneffective(CopiesState):
    def apply(self, state: State, action: str) -> Transition[State]:
        after = super().apply(state, action)
        return after if after.effect is Effect.CHANGED else replace(after, state=state, feedback="")


class ScoresIneffective(SilentlyIneffective):
    def scored_actions(self, state: State) -> tuple[str, ...]:
        return self.actions(state)


class ScoresInTurn(LightsOut):
    """The order of the scored actions depends on the board."""

    def scored_actions(self, state: State) -> tuple[str, ...]:
        actions = self.actions(state)
        return actions[::-1] if state.lights & 1 else actions


class ScoresFew(LightsOut):
    def scored_actions(self, state: State) -> tuple[str, ...]:
        return self.actions(state)[:3]


class KnowsNoMirror(LightsOut):
    def canonical(self, state: State) -> str:
        return self.encode(state)


class SeesNothing(LightsOut):
    def observe(self, state: State) -> str:
        return ""


class ObservesIdentity(LightsOut):
    def observe(self, state: State) -> str:
        return f"{id(state)}\n{super().observe(state)}"


class DecodesByIndex(LightsOut):
    """A broken board is refused with whatever comes along."""

    def decode(self, text: str) -> State:
        try:
            return super().decode(text)
        except PuzzleError:
            raise KeyError(text[:1]) from None


class RefusesAtLength(LightsOut):
    def decode(self, text: str) -> State:
        try:
            return super().decode(text)
        except PuzzleError as error:
            raise PuzzleError(f"{error}\n{text}") from None


@dataclass(slots=True)
class Drifting:
    """A generator with a memory."""

    num_boards: int = 0

    def __call__(self, tier: Tier, rng: np.random.Generator) -> State:
        self.num_boards += 1
        rng.random(self.num_boards)
        return generate_lights_out(tier, rng)


def always_the_same(tier: Tier, rng: np.random.Generator) -> State:
    return generate_lights_out(tier, np.random.default_rng(0))


def solved_at_once(tier: Tier, rng: np.random.Generator) -> State:
    return replace(generate_lights_out(tier, rng), lights=0)


class OffByOne(LightsOutSolver):
    def cost_to_go(self, states: Sequence[State]) -> np.ndarray:
        costs = super().cost_to_go(states)
        return np.where(costs > 0, costs + 1, costs)


class CallsItWonTooSoon(LightsOutSolver):
    def cost_to_go(self, states: Sequence[State]) -> np.ndarray:
        return np.maximum(super().cost_to_go(states) - 1, 0)


class Fractional(LightsOutSolver):
    def cost_to_go(self, states: Sequence[State]) -> np.ndarray:
        return super().cost_to_go(states) * 1.5


class StaleActionCosts(LightsOutSolver):
    def action_costs(self, state: State) -> dict[str, float]:
        return dict.fromkeys(super().action_costs(state), float(self.cost_to_go([state])[0]))


class UnorderedActionCosts(LightsOutSolver):
    def action_costs(self, state: State) -> dict[str, float]:
        return dict(reversed(super().action_costs(state).items()))


class AlwaysHasAdvice(LightsOutSolver):
    def best_action(self, state: State) -> str | None:
        return super().best_action(state) or "press 0 0"


class LastOfTheBest(LightsOutSolver):
    def best_action(self, state: State) -> str | None:
        costs = self.action_costs(state)
        return min(reversed(costs), key=costs.__getitem__) if state.lights else None


class WorstAction(LightsOutSolver):
    def best_action(self, state: State) -> str | None:
        costs = self.action_costs(state)
        return max(costs, key=costs.__getitem__) if state.lights else None


class GivesUpEarly(LightsOutSolver):
    """Calls a board dead where the first light is on, though a press puts it out."""

    def cost_to_go(self, states: Sequence[State]) -> np.ndarray:
        is_dead = [bool(state.lights & 1) for state in states]
        return np.where(is_dead, np.inf, super().cost_to_go(states))


class NeverDead(GivesUpEarly):
    def is_dead(self, state: State) -> bool:
        return False


class ArrivesChanged(LightsOutSolver):
    def __reduce__(self) -> Any:
        return (OffByOne, (self._rows, self._cols))


KEY_THAT_MOVES = replace(
    LIGHTS_OUT,
    solver=SolverEntry(build=LIGHTS_OUT.solver.build, layout_key=lambda state: state.lights),
)

BROKEN: list[tuple[str, GamePlugin]] = [
    ("declaration", with_game(NoTiers())),
    ("declaration", with_game(BudgetTooShort())),
    ("generation", replace(LIGHTS_OUT, generate=Drifting())),
    ("generation", replace(LIGHTS_OUT, generate=always_the_same)),
    ("generation", replace(LIGHTS_OUT, generate=solved_at_once)),
    ("pure_rules", with_game(Mutates())),
    ("pure_rules", with_game(Remembers())),
    ("effects", with_game(CopiesState())),
    ("effects", with_game(SilentlyIneffective())),
    ("scored_actions", with_game(ScoresIneffective())),
    ("scored_actions", with_game(ScoresInTurn())),
    ("all_changes_scored", with_game(ScoresFew())),
    ("symmetry", with_game(KnowsNoMirror())),
    ("round_trip", with_game(Forgets())),
    ("junk_boards", with_game(DecodesByIndex())),
    ("junk_boards", with_game(RefusesAtLength())),
    ("observation", with_game(SeesNothing())),
    ("observation", with_game(ObservesIdentity())),
    ("parser", with_game(ReadsDigits())),
    ("parser", with_game(ParsesMore())),
    ("canonical_actions", with_game(KeepsSpelling())),
    ("canonical_actions", with_game(NeedsNoFence())),
    ("costs", with_solver(CallsItWonTooSoon)),
    ("costs", with_solver(Fractional)),
    ("action_costs", with_solver(StaleActionCosts)),
    ("action_costs", with_solver(UnorderedActionCosts)),
    ("best_is_none", with_solver(AlwaysHasAdvice)),
    ("best_is_least", with_solver(LastOfTheBest)),
    ("best_play", with_solver(OffByOne)),
    ("best_play", with_solver(WorstAction)),
    ("dead_is_final", with_solver(GivesUpEarly)),
    ("dead_is_final", with_solver(NeverDead)),
    ("one_solver_a_puzzle", KEY_THAT_MOVES),
    ("one_solver_a_puzzle", with_solver(ArrivesChanged)),
]
"""The check that must notice, and what it must notice."""
