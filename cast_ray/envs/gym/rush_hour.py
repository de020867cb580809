"""Rush Hour in arrays: 0 empty, 1 wall, 2 vehicle A, 3 vehicle B, and so on.

Each vehicle of the tier has two actions per cell that it may slide by, on 6 x 6 cells in the order
-1 -2 -3 -4 +1 +2 +3 +4. ``V`` is the number of vehicles of the tier; a board may have fewer.
"""

from __future__ import annotations

from string import ascii_uppercase

import numpy as np
from numba import njit

from cast_ray.envs.gym.numeric import CHANGED, INEFFECTIVE, INVALID, PLAYING, WON, NumericRules
from cast_ray.errors import PuzzleError
from cast_ray.games.game import Tier
from cast_ray.games.rush_hour import RushHour, RushHourState
from cast_ray.games.rush_hour_board import LENGTHS, RED_CAR, board_text

EMPTY, WALL, FIRST_VEHICLE = 0, 1, 2
_SYMBOLS = ".x" + ascii_uppercase
_GAME = RushHour()


def _max_slide(tier: Tier) -> int:
    return max(tier.rows, tier.cols) - min(LENGTHS)


def _actions(tier: Tier) -> tuple[str, ...]:
    return tuple(
        f"{letter}{sign}{count}"
        for letter in ascii_uppercase[: tier.num_pieces]
        for sign in "-+"
        for count in range(1, _max_slide(tier) + 1)
    )


def _load(state: RushHourState, tier: Tier) -> tuple[np.ndarray, ...]:
    """Return cells, mask and ``[V, 4]`` int64: first row and column, length, 1 if upright.

    Raises:
        PuzzleError: the board has a vehicle that the tier's actions do not name.
    """
    rows = _GAME.visible_rows(state)
    cells = np.array([[_SYMBOLS.index(symbol) for symbol in row] for row in rows], np.uint8)
    beyond = np.argwhere(cells >= FIRST_VEHICLE + tier.num_pieces)
    if len(beyond):
        row, col = beyond[0].tolist()
        raise PuzzleError(
            f"vehicle {rows[row][col]} at row {row}, column {col} has no action in tier "
            f"{tier.name}, whose vehicles are A to {ascii_uppercase[tier.num_pieces - 1]}: "
            "use another tier"
        )
    vehicles = np.zeros((tier.num_pieces, 4), np.int64)
    for number in range(tier.num_pieces):
        places = np.argwhere(cells == FIRST_VEHICLE + number)
        if len(places):
            vehicles[number] = (*places[0], len(places), places[0, 1] == places[-1, 1])
    mask = np.empty(len(vehicles) * 2 * _max_slide(tier), np.int8)
    _fill_mask(cells, mask, vehicles)
    return cells, mask, vehicles


def _board(arrays: tuple[np.ndarray, ...]) -> str:
    return board_text(["".join(_SYMBOLS[number] for number in row) for row in arrays[0].tolist()])


@njit(cache=True)
def _room(cells: np.ndarray, vehicle: np.ndarray, sign: int) -> int:
    """Return how many cells a vehicle ``[4]`` can slide backward (-1) or forward (+1)."""
    down, right = (sign, 0) if vehicle[3] else (0, sign)
    lead = vehicle[2] - 1 if sign > 0 else 0
    row = vehicle[0] + down * (lead + 1)
    col = vehicle[1] + right * (lead + 1)
    room = 0
    while 0 <= row < cells.shape[0] and 0 <= col < cells.shape[1] and cells[row, col] == EMPTY:
        room += 1
        row += down
        col += right
    return room


@njit(cache=True)
def _fill_mask(cells: np.ndarray, mask: np.ndarray, vehicles: np.ndarray) -> None:
    """Write which slides fit."""
    action, max_slide = 0, len(mask) // (2 * len(vehicles))
    for number in range(len(vehicles)):
        for sign in (-1, 1):
            room = _room(cells, vehicles[number], sign) if vehicles[number, 2] else 0
            for count in range(1, max_slide + 1):
                mask[action] = count <= room
                action += 1


@njit(cache=True)
def _paint(cells: np.ndarray, vehicle: np.ndarray, symbol: int) -> None:
    """Write a number into all cells of a vehicle ``[4]``."""
    for i in range(vehicle[2]):
        if vehicle[3]:
            cells[vehicle[0] + i, vehicle[1]] = symbol
        else:
            cells[vehicle[0], vehicle[1] + i] = symbol


@njit(cache=True)
def _play(action: int, cells: np.ndarray, mask: np.ndarray, vehicles: np.ndarray) -> int:
    """Slide the vehicle, if the mask says that the slide fits."""
    max_slide = len(mask) // (2 * len(vehicles))
    number, slide = divmod(action, 2 * max_slide)
    vehicle = vehicles[number]
    if vehicle[2] == 0:
        return INVALID + PLAYING
    if mask[action] == 0:
        return INEFFECTIVE + PLAYING
    count = slide % max_slide + 1
    _paint(cells, vehicle, EMPTY)
    vehicle[1 - vehicle[3]] += count if slide >= max_slide else -count
    _paint(cells, vehicle, FIRST_VEHICLE + number)
    _fill_mask(cells, mask, vehicles)
    red_car = vehicles[0]
    return CHANGED + (WON if red_car[1] + red_car[2] == cells.shape[1] else PLAYING)


def blocking_cells(cells: np.ndarray) -> np.ndarray:
    """Return ``[S]`` how many cells between the red car and the exit are occupied.

    Args:
        cells: ``[S, rows, cols]`` symbol numbers.
    """
    exit_rows = (cells == FIRST_VEHICLE).any(axis=2).argmax(axis=1)
    row = cells[np.arange(len(cells)), exit_rows]
    is_red = row == FIRST_VEHICLE
    has_passed = is_red[:, ::-1].cumsum(axis=1)[:, ::-1] == 0  # columns right of the red car
    return ((row != EMPTY) & has_passed).sum(axis=1)


def renamed_vehicles(board: str, letters: str, rng: np.random.Generator) -> str:
    """Return a board with its vehicles named at random; the red car keeps its name.

    Args:
        board: as ``RushHour.encode`` writes it; its letters are among ``letters``.
        letters: what vehicles may be called, the red car first. A network that learned boards of
            few vehicles under all of these names has seen the symbols of boards with more.
        rng: draws the names.
    """
    others = letters[1:]
    assert letters[0] == RED_CAR
    order = rng.permutation(len(others))
    return board.translate(str.maketrans(others, "".join(others[i] for i in order)))


RUSH_HOUR_RULES: NumericRules[RushHourState] = NumericRules(
    size=lambda state: (state.layout.rows, state.layout.cols),
    num_symbols=lambda tier: FIRST_VEHICLE + tier.num_pieces,
    actions=_actions,
    load=_load,
    play=_play,
    board=_board,
    prior=blocking_cells,
    rename=lambda board, tier, rng: renamed_vehicles(
        board, ascii_uppercase[: tier.num_pieces], rng
    ),
)
