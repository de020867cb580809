"""Sokoban: rules and text. A cell is one number, ``row * cols + column``, counted from zero.

The edge of the board counts as wall, so a room need not be closed. Boxes are pushed, never pulled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cast_ray.errors import PuzzleError
from cast_ray.games.collections.sokoban import read_levels
from cast_ray.games.game import Effect, Game, ParseFailure, Status, Tier, Transition
from cast_ray.games.text import (
    BoardText,
    check_grid,
    grid_distance,
    grid_rows,
    last_fenced_block,
    place_of,
    smallest_form,
)

ACTIONS = ("Up", "Down", "Left", "Right")
SYMBOLS = "#_OX*PS"
"""Wall, floor, target, box, box on target, player, player on target."""

_STEPS = {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}
_SPELLINGS = {name.lower(): name for name in ACTIONS} | {
    str(number): name for number, name in enumerate(ACTIONS, start=1)
}
_EXPECTED = "End with ```Up```, ```Down```, ```Left``` or ```Right```."


@dataclass(frozen=True, slots=True, kw_only=True)
class SokobanLayout:
    """What never moves. Each target takes one box, so a layout also fixes the number of boxes."""

    rows: int
    cols: int
    walls: bytes
    """``[rows * cols]`` 1 where a wall is: hashed once, compared and read by NumPy at no cost."""
    targets: tuple[int, ...]
    """``[num_boxes]`` cells, ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SokobanState:
    """One position of a room."""

    layout: SokobanLayout
    player: int
    """Cell of the player."""
    boxes: tuple[int, ...]
    """``[num_boxes]`` cells, ascending."""


class Sokoban(Game[SokobanState]):
    """The rules of Sokoban as a ``Game``."""

    name = "sokoban"
    symbols = SYMBOLS
    rules = (
        "You play Sokoban. Push every box onto a target. Symbols: # wall, _ floor, O target, "
        "X box, * box on a target, P you, S you on a target. Positions are (row, column), "
        "counted from 0 at the top left. One action a turn: Up, Down, Left or Right moves you "
        "one cell. Walking into a box pushes it, if the cell behind it holds neither wall nor "
        "box. You cannot pull. Think, then end with the action between two fences of three "
        "backticks, for example ```Up```."
    )
    tiers: Mapping[str, Tier] = {
        name: Tier(
            name=name,
            rows=side,
            cols=side,
            num_pieces=num_boxes,
            turn_budget=turns,
            min_cost=min_cost,
            max_cost=max_cost,
        )
        for name, side, num_boxes, min_cost, max_cost, turns in (
            ("id", 6, 2, 1, 30, 30),
            ("unseen", 7, 3, 1, 40, 40),
            ("mini", 6, 1, 2, 6, 8),
            ("mini-unseen", 6, 2, 2, 14, 18),
        )
    }

    def decode(self, text: str) -> SokobanState:
        """Read a board: rows of ``SYMBOLS`` joined by newlines (one more at the end is allowed).

        An open border is allowed, because the edge counts as wall; so is a solved board.

        Raises:
            PuzzleError: the board is empty or ragged, holds an unknown symbol, not exactly one
                player, no box, or not one target for each box; row and column are named.
        """
        lines = text.removesuffix("\n").split("\n")
        check_grid(lines, SYMBOLS)
        grid = "".join(lines)
        cols = len(lines[0])
        players = _cells_of(grid, "PS")
        boxes = _cells_of(grid, "X*")
        targets = _cells_of(grid, "O*S")
        _check_pieces(players, boxes, targets, rows=len(lines), cols=cols)
        layout = SokobanLayout(
            rows=len(lines),
            cols=cols,
            walls=bytes(symbol == "#" for symbol in grid),
            targets=targets,
        )
        return SokobanState(layout=layout, player=players[0], boxes=boxes)

    def encode(self, state: SokobanState) -> str:
        """Return the rows of the board joined by newlines."""
        return "\n".join(_lines(state))

    def observe(self, state: SokobanState) -> str:
        """Return the listing of all coordinates, then the board, one row per line."""
        layout = state.layout
        off_target = [cell for cell in state.boxes if cell not in layout.targets]
        on_target = [cell for cell in state.boxes if cell in layout.targets]
        return "\n".join(
            [
                f"Size: {layout.rows} x {layout.cols}",
                f"Targets: {_listing(layout.targets, layout.cols)}",
                f"Boxes off target: {_listing(off_target, layout.cols)}",
                f"Boxes on target: {_listing(on_target, layout.cols)}",
                f"Player: {_listing([state.player], layout.cols)}",
                "Board:",
                *_lines(state),
            ]
        )

    def parse(self, answer: str) -> str | ParseFailure:
        """Return Up, Down, Left or Right if the last fenced block is that word (or 1 to 4)."""
        content = last_fenced_block(answer)
        if content is None:
            return ParseFailure(feedback=f"No action found. {_EXPECTED}")
        action = _SPELLINGS.get(content.lower())
        if action is None:
            return ParseFailure(feedback=f"Unknown action. {_EXPECTED}")
        return action

    def apply(self, state: SokobanState, action: str) -> Transition[SokobanState]:
        """Move the player one cell, pushing a box that is in the way.

        Raises:
            ValueError: ``action`` is not one of ``ACTIONS`` in this spelling.
        """
        if action not in _STEPS:
            raise ValueError(f"action must be one of {', '.join(ACTIONS)}, got {action!r}")
        ahead = _neighbor(state.layout, state.player, action)
        if ahead is None:
            return _blocked(state, f"{action}: a wall is in the way.")
        if ahead not in state.boxes:
            return Transition(state=replace(state, player=ahead))
        behind = _neighbor(state.layout, ahead, action)
        if behind is None:
            return _blocked(state, f"{action}: a wall is behind the box.")
        if behind in state.boxes:
            return _blocked(state, f"{action}: another box is behind the box.")
        boxes = tuple(sorted(behind if cell == ahead else cell for cell in state.boxes))
        return Transition(state=replace(state, player=ahead, boxes=boxes))

    def status(self, state: SokobanState) -> Status:
        """Return WON when every box stands on a target; a deadlock is not lost by the rules."""
        return Status.WON if state.boxes == state.layout.targets else Status.PLAYING

    def actions(self, state: SokobanState) -> tuple[str, ...]:
        """Return Up, Down, Left, Right, walls or not."""
        return ACTIONS

    def scored_actions(self, state: SokobanState) -> tuple[str, ...]:
        """Return those of Up, Down, Left, Right that change the state."""
        return tuple(
            action for action in ACTIONS if self.apply(state, action).effect is Effect.CHANGED
        )

    def thought(self, state: SokobanState) -> str:
        """Return how the nearest box must move, how the player gets to it, and the moves.

        A language model finds an action in these words more easily than in the drawing, and the
        differences more surely next to the places that it copied.
        """
        cols, targets = state.layout.cols, state.layout.targets
        box = min(state.boxes, key=lambda c: (c in targets, grid_distance(state.player, c, cols)))
        target = min(targets, key=lambda c: (c in state.boxes, grid_distance(box, c, cols)))
        from_box, from_me = _way(box, target, cols), _way(state.player, box, cols)
        task = f"Box {_listing([box], cols)} to target {_listing([target], cols)}: {from_box}."
        moves = ", ".join(self.scored_actions(state)).lower() or "nowhere"
        return f"{task} Me {_listing([state.player], cols)} to box: {from_me}. I can go {moves}."

    def canonical(self, state: SokobanState) -> str:
        """Return the smallest board text over the 8 symmetries of the square."""
        return smallest_form(_lines(state))

    def visible_rows(self, state: SokobanState) -> tuple[str, ...]:
        """Return the rows of the board."""
        return tuple(_lines(state))

    def dimensions(self, state: SokobanState) -> tuple[int, int, int]:
        """Return rows, columns and boxes."""
        return state.layout.rows, state.layout.cols, len(state.boxes)

    def read_boards(self, text: str) -> Iterator[BoardText]:
        """Yield the levels of a collection, in our symbols or the usual ones (XSB)."""
        return read_levels(text)


def _check_pieces(
    players: tuple[int, ...],
    boxes: tuple[int, ...],
    targets: tuple[int, ...],
    *,
    rows: int,
    cols: int,
) -> None:
    """Raise PuzzleError unless there is one player, a box, and one target for each box."""
    extent = f"in rows 0 to {rows - 1}, columns 0 to {cols - 1}"
    if not players:
        raise PuzzleError(f"the board has no player (P or S) {extent}: add one")
    if len(players) > 1:
        raise PuzzleError(
            f"the board has {len(players)} players, the second at {place_of(players[1], cols)}: "
            "keep one"
        )
    if not boxes:
        raise PuzzleError(f"the board has no box (X or *) {extent}: add one")
    if len(boxes) != len(targets):
        surplus = max(boxes, targets, key=len)[min(len(boxes), len(targets))]
        raise PuzzleError(
            f"the board has {len(boxes)} boxes and {len(targets)} targets, the first without a "
            f"partner at {place_of(surplus, cols)}: give each box one target"
        )


def _cells_of(grid: str, symbols: str) -> tuple[int, ...]:
    return tuple(cell for cell, symbol in enumerate(grid) if symbol in symbols)


def _listing(cells: tuple[int, ...] | list[int], cols: int) -> str:
    return " ".join(f"({cell // cols}, {cell % cols})" for cell in cells) or "none"


def _way(start: int, end: int, cols: int) -> str:
    """Return, for example, ``up 1, left 2``."""
    down, right = end // cols - start // cols, end % cols - start % cols
    steps = {"up": -down, "down": down, "left": -right, "right": right}
    return ", ".join(f"{way} {number}" for way, number in steps.items() if number > 0) or "nowhere"


def _lines(state: SokobanState) -> list[str]:
    """Return the rows of the board as text."""
    layout = state.layout
    grid = ["#" if wall else "_" for wall in layout.walls]
    for cell in layout.targets:
        grid[cell] = "O"
    for cell in state.boxes:
        grid[cell] = "*" if grid[cell] == "O" else "X"
    grid[state.player] = "S" if grid[state.player] == "O" else "P"
    return grid_rows("".join(grid), layout.cols)


def _neighbor(layout: SokobanLayout, cell: int, action: str) -> int | None:
    """Return the cell next to ``cell``, or None if that is a wall or beyond the edge."""
    row_step, col_step = _STEPS[action]
    row, col = cell // layout.cols + row_step, cell % layout.cols + col_step
    if not (0 <= row < layout.rows and 0 <= col < layout.cols):
        return None
    neighbor = row * layout.cols + col
    return None if layout.walls[neighbor] else neighbor


def _blocked(state: SokobanState, feedback: str) -> Transition[SokobanState]:
    return Transition(state=state, effect=Effect.INEFFECTIVE, feedback=feedback)
