"""The states for the regressions: met in play, each once, with all their successors.

Letters: ``S`` states, ``A`` actions of the network, ``L`` legal moves of all states together, ``M``
distinct successors that are undecided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from cast_ray.envs.gym import get_numeric_rules, widest_tier
from cast_ray.envs.gym.numeric import OUTCOMES
from cast_ray.envs.text_env import SOLVED
from cast_ray.errors import LearnerError
from cast_ray.games import find_tier, get_game
from cast_ray.training.value_net.env import StartSettings, draw_board
from solver_actors.value_net.network import QNetwork, masked_q

Arrays = tuple[np.ndarray, ...]
GAMES_AT_ONCE = 256
PATIENCE = 20
"""Rounds of games without new states, in a row, after which collecting ends."""
LEAST_NEW = 0.01
"""Share of a round's states that must be new; with fewer it counts as without new states."""
BOARDS_AT_ONCE = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Distinct states and the result of each legal move."""

    cells: np.ndarray
    """``[S, rows, cols]`` uint8."""
    masks: np.ndarray
    """``[S, A]`` int8, at least one 1 in each row."""
    state_of: np.ndarray
    """``[L]`` the state of each move, ascending."""
    action_of: np.ndarray
    """``[L]`` the move's action, ascending within a state."""
    is_win: np.ndarray
    """``[L]`` whether the move solves the game."""
    next_of: np.ndarray
    """``[L]`` row of the successor in ``next_cells``; -1 where the game is decided."""
    next_cells: np.ndarray
    """``[M, rows, cols]`` uint8."""
    next_masks: np.ndarray
    """``[M, A]`` int8."""


class StateCollector:
    """Plays the training boards and keeps every undecided state that it meets once."""

    def __init__(self, start: StartSettings, *, rng: np.random.Generator) -> None:
        """Take where games start, and the generator of boards and moves."""
        self._start = start
        self._rng = rng
        self._game = get_game(start.game)
        self._rules = get_numeric_rules(start.game)
        self._wide = widest_tier(start.game, start.tier)
        self._turn_budget = find_tier(start.game, start.tier).turn_budget

    def collect(self, network: QNetwork, *, num_states: int, epsilon: float) -> list[Arrays]:
        """Return the arrays of at most ``num_states`` distinct states that have a legal move.

        Every other game is random play; in the others a move is random with chance ``epsilon`` and
        else the network's best.
        """
        found: dict[bytes, Arrays] = {}
        rounds_in_vain = 0
        while len(found) < num_states and rounds_in_vain < PATIENCE:
            before, num_met = len(found), 0
            for arrays in self._play_round(network, epsilon):
                num_met += 1
                found.setdefault(self._key_of(arrays), arrays)
            is_in_vain = len(found) - before <= LEAST_NEW * num_met
            rounds_in_vain = rounds_in_vain + 1 if is_in_vain else 0
        return list(found.values())[:num_states]

    def with_successors(self, states: Sequence[Arrays]) -> States:
        """Play every legal move of every state once, and return states and results."""
        state_of, action_of, is_win, next_of = [], [], [], []
        successors: dict[bytes, int] = {}
        kept: list[Arrays] = []
        for number, state in enumerate(states):
            for action in np.flatnonzero(state[1]).tolist():
                arrays = _copy(state)
                end_reason = self._play(action, arrays)
                row = -1
                if not end_reason:
                    # Successors that look the same to the network have the same value.
                    row = successors.setdefault(_key(arrays[:2]), len(kept))
                    if row == len(kept):
                        kept.append(arrays[:2])
                state_of.append(number)
                action_of.append(action)
                is_win.append(end_reason == SOLVED)
                next_of.append(row)
        cells, masks = _stacked(states)
        # If every move decides the game there is no successor: an empty array of the right shape.
        next_cells, next_masks = _stacked(kept) if kept else (cells[:0], masks[:0])
        return States(
            cells=cells,
            masks=masks,
            state_of=np.array(state_of, np.int64),
            action_of=np.array(action_of, np.int64),
            is_win=np.array(is_win, np.bool_),
            next_of=np.array(next_of, np.int64),
            next_cells=next_cells,
            next_masks=next_masks,
        )

    def _play_round(self, network: QNetwork, epsilon: float) -> list[Arrays]:
        """Play ``GAMES_AT_ONCE`` games to their ends and return the states with a move to make."""
        games = [self._begin() for _ in range(GAMES_AT_ONCE)]
        epsilons = np.where(np.arange(GAMES_AT_ONCE) % 2, epsilon, 1.0)
        met: list[Arrays] = []
        for _ in range(self._turn_budget):
            going = [number for number, arrays in enumerate(games) if arrays[1].any()]
            if not going:
                break
            met += [_copy(games[number]) for number in going]
            best = _best_actions(network, [games[number] for number in going])
            for number, action in zip(going, best, strict=True):
                arrays = games[number]
                if self._rng.random() < epsilons[number]:
                    action = self._rng.choice(np.flatnonzero(arrays[1]))
                if self._play(int(action), arrays):
                    arrays[1][:] = 0  # over: no legal move is left
        return met

    def _key_of(self, arrays: Arrays) -> bytes:
        """Return a key of a state: its arrays, and its text if one of them holds objects."""
        plain = [array for array in arrays if array.dtype != np.object_]
        is_plain = len(plain) == len(arrays)
        return _key(plain) + (b"" if is_plain else self._rules.board(arrays).encode())

    def _begin(self) -> Arrays:
        board = draw_board(self._start, self._rng)
        return _copy(self._rules.load(self._game.decode(board), self._wide))

    def _play(self, action: int, arrays: Arrays) -> str:
        """Play a move in the arrays and return why the game is over; empty if it is not."""
        _, end_reason = OUTCOMES[self._rules.play(action, *arrays)]
        is_dead = self._start.is_dead
        if end_reason or is_dead is None:
            return end_reason
        return "dead" if is_dead(self._game.decode(self._rules.board(arrays))) else ""


def q_values(network: QNetwork, cells: np.ndarray) -> np.ndarray:
    """Return the ``[N, A]`` Q-values of ``[N, rows, cols]`` cells, without gradients."""
    device = next(network.parameters()).device
    parts = [np.empty((0, len(network.shape.actions)), np.float32)]
    with torch.no_grad():
        for first in range(0, len(cells), BOARDS_AT_ONCE):
            part = torch.from_numpy(cells[first : first + BOARDS_AT_ONCE]).to(device)
            parts.append(network(part).cpu().numpy())
    return np.concatenate(parts)


def check_values(network: QNetwork, start: StartSettings, *, step_penalty: float) -> None:
    """Check a network's values of start boards, because RLlib's loss silently treats NaN as 0.

    Args:
        network: on any device.
        start: where games start.
        step_penalty: of its training; bounds every return from below.

    Raises:
        LearnerError: a value is not finite, or ten times larger than any return.
    """
    game, rules = get_game(start.game), get_numeric_rules(start.game)
    wide = widest_tier(start.game, start.tier)
    boards = [rules.load(game.decode(one), wide) for one in start.boards[:BOARDS_AT_ONCE]]
    cells, masks = _stacked(boards)
    values = q_values(network, cells)[masks != 0]
    most = 10 * max(1.0, step_penalty * find_tier(start.game, start.tier).turn_budget)
    largest = float(np.abs(values).max(initial=0.0))  # NaN if one is
    if not largest <= most:
        raise LearnerError(
            f"the base network has diverged: its values reach {largest:.3g}, but no return is much "
            "larger than 1. Train again in another run_dir with a smaller dqn.lr"
        )


def _best_actions(network: QNetwork, games: Sequence[Arrays]) -> list[int]:
    cells, masks = _stacked(games)
    q = torch.from_numpy(q_values(network, cells))
    return masked_q(q, torch.from_numpy(masks)).argmax(dim=-1).tolist()


def _stacked(states: Sequence[Arrays]) -> tuple[np.ndarray, np.ndarray]:
    return np.stack([one[0] for one in states]), np.stack([one[1] for one in states])


def _copy(arrays: Sequence[np.ndarray]) -> Arrays:
    return tuple([array.copy() for array in arrays])


def _key(arrays: Sequence[np.ndarray]) -> bytes:
    return b"".join(array.tobytes() for array in arrays)
