"""What a solver must satisfy, by itself and compared with the rules of its game."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cast_ray.games.game import Effect, Status
from cast_ray.games.testing.samples import Episode, Samples, State, demand, shown, some_of


def check_costs(samples: Samples) -> None:
    """Costs are whole numbers >= 0, inf or NaN; 0 in won states and no others, inf in lost ones."""
    for episode in samples.episodes:
        states = samples.advised(episode)
        for state, cost in zip(states, _costs(samples, episode, states), strict=True):
            place = f"the cost of {shown(samples.game.encode(state))}"
            demand(
                not math.isfinite(cost) or (cost >= 0 and cost == int(cost)),
                f"{place} is {cost}: use a whole number of moves, inf or NaN",
            )
            status = samples.game.status(state)
            demand(
                (cost == 0) == (status is Status.WON),
                f"{place} is {cost:g} and the game is {status}: 0 means won, and nothing else does",
            )
            demand(
                status is not Status.LOST or math.isinf(cost),
                f"{place} is {cost:g} and the game is lost: that is inf",
            )


def check_action_costs(samples: Samples) -> None:
    """``action_costs`` holds, in the order of the scored actions, the costs of where they lead."""
    game = samples.game
    for episode, state in _open_states(samples):
        text, solver = shown(game.encode(state)), samples.solver(episode)
        given, scored = solver.action_costs(state), game.scored_actions(state)
        demand(
            tuple(given) == scored,
            f"action_costs of {text} has {shown(tuple(given))} instead of {shown(scored)}",
        )
        after = [game.apply(state, action).state for action in scored]
        for action, cost in zip(scored, _costs(samples, episode, after), strict=True):
            demand(
                np.array_equal(given[action], cost, equal_nan=True),
                f"action_costs of {text} gives {action!r} {given[action]}, and the state it leads "
                f"to costs {cost}",
            )


def check_best_is_none(samples: Samples) -> None:
    """There is no best action where the cost is 0, infinite or unknown."""
    for episode in samples.episodes:
        states = samples.advised(episode)
        for state, cost in zip(states, _costs(samples, episode, states), strict=True):
            if cost == 0 or not math.isfinite(cost):
                best = samples.solver(episode).best_action(state)
                demand(
                    best is None,
                    f"best_action of {shown(samples.game.encode(state))} is {best!r} at the cost "
                    f"{cost}: return None",
                )


def check_best_is_least(samples: Samples) -> None:
    """The best action is the first scored one of least cost, where all their costs are known."""
    for episode, state in _open_states(samples):
        solver = samples.solver(episode)
        costs = solver.action_costs(state)
        if math.isfinite(_cost(samples, episode, state)) and not any(
            map(math.isnan, costs.values())
        ):
            first, best = min(costs, key=costs.__getitem__), solver.best_action(state)
            demand(
                best == first,
                f"best_action of {shown(samples.game.encode(state))} is {best!r}, and {first!r} is "
                "the first of least cost",
            )


def check_best_play(samples: Samples) -> None:
    """From a finite cost N, the best actions win in exactly N turns and lower it by 1 at each."""
    game = samples.game
    for episode, start in _open_states(samples):
        solver, state, cost = samples.solver(episode), start, _cost(samples, episode, start)
        if not math.isfinite(cost):
            continue
        for left in reversed(range(int(cost))):
            text, action = shown(game.encode(state)), solver.best_action(state)
            demand(action is not None, f"best_action of {text} is None at the cost {left + 1}")
            transition = game.apply(state, action)
            demand(
                transition.effect is Effect.CHANGED,
                f"best_action of {text} is {action!r}, which changes nothing",
            )
            state = transition.state
            cost = _cost(samples, episode, state)
            demand(
                cost == left,
                f"{action!r} on {text} lowers the cost from {left + 1} to {cost:g}, not to {left}",
            )
            demand(
                left == 0 or samples.is_open(state),
                f"{action!r} on {text} ends the game ({game.status(state)}) with the cost {left}",
            )
        demand(
            game.status(state) is Status.WON,
            f"{shown(game.encode(start))} is not won after the best actions",
        )


def check_dead_is_final(samples: Samples) -> None:
    """``is_dead`` means an infinite cost, and no action leads from there to a finite one."""
    for episode, state in _open_states(samples):
        solver, cost = samples.solver(episode), _cost(samples, episode, state)
        text = shown(samples.game.encode(state))
        demand(
            solver.is_dead(state) == math.isinf(cost),
            f"is_dead of {text} is {solver.is_dead(state)}, and its cost is {cost:g}",
        )
        if math.isinf(cost):
            rescues = [a for a, after in solver.action_costs(state).items() if math.isfinite(after)]
            demand(not rescues, f"{text} costs inf, but {rescues} lead to a finite cost")


def check_one_solver_a_puzzle(samples: Samples) -> None:
    """All states of a puzzle have one layout key, and any of them builds the same solver."""
    entry = samples.plugin.solver
    for episode in samples.episodes:
        states = some_of(episode.states)
        keys = {entry.layout_key(state) for state in episode.states}
        demand(
            len(keys) == 1,
            f"the layout key changes during play: {shown(keys)}; leave out what moves",
        )
        first, other = samples.solver(episode), entry.build(states[-1])
        demand(first.memory_bytes > 0, f"memory_bytes is {first.memory_bytes}: the cache needs it")
        # A solver is built by one actor and sent to others.
        for name, solver in (
            ("built from a later state", other),
            ("that was pickled", pickle.loads(pickle.dumps(first))),
        ):
            demand(
                np.array_equal(solver.cost_to_go(states), first.cost_to_go(states), equal_nan=True),
                f"a solver {name} gives other costs than the puzzle's own, on states of "
                f"{shown(samples.game.encode(states[0]))}",
            )


def _open_states(samples: Samples) -> Iterator[tuple[Episode, State]]:
    """Yield some states of each episode in which the game is open."""
    for episode in samples.episodes:
        for state in some_of([*filter(samples.is_open, episode.states)]):
            yield episode, state


def _costs(samples: Samples, episode: Episode, states: Sequence[State]) -> list[float]:
    """Return the costs of states of one puzzle; they must be a float64 array, one each."""
    costs: Any = samples.solver(episode).cost_to_go(states)
    demand(
        isinstance(costs, np.ndarray)
        and costs.dtype == np.float64
        and costs.shape == (len(states),),
        f"cost_to_go of {len(states)} states is {shown(costs)}: return float64, one each",
    )
    return costs.tolist()


def _cost(samples: Samples, episode: Episode, state: State) -> float:
    return _costs(samples, episode, [state])[0]


SOLVER_CHECKS = {
    "costs": check_costs,
    "action_costs": check_action_costs,
    "best_is_none": check_best_is_none,
    "best_is_least": check_best_is_least,
    "best_play": check_best_play,
    "dead_is_final": check_dead_is_final,
    "one_solver_a_puzzle": check_one_solver_a_puzzle,
}
