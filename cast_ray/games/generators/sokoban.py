"""Sokoban rooms by reverse play: start solved, pull boxes away at random, displace the player.

Every pull is a push backwards, so a room is solvable by construction.
"""

from __future__ import annotations

import numpy as np

from cast_ray.errors import PuzzleError
from cast_ray.games.game import Tier
from cast_ray.games.sokoban import SokobanLayout, SokobanState

MAX_ROOMS = 1_000
WALL_DENSITY = (0.05, 0.4)
"""Range of the share of inner cells that are drawn as walls."""
PULL_SHARE = 0.8
"""Chance to pull a box that stands behind the player."""
REVERSE_STEPS_PER_BOX = (40, 200)
"""Range of the length of the reverse play, for each box."""
MAX_DISPLACEMENT = 6
"""Most steps that the player walks after the last pull."""


def generate_sokoban(tier: Tier, rng: np.random.Generator) -> SokobanState:
    """Return a random solvable room with a closed border and no box on a target.

    Args:
        tier: gives the size and the number of boxes; its cost range is ignored.
        rng: the only source of randomness.

    Raises:
        PuzzleError: the tier leaves no space for its boxes.
    """
    for _ in range(MAX_ROOMS):
        floor = _random_floor(tier.rows, tier.cols, rng)
        if len(floor) < 2 * tier.num_pieces + 2:
            continue
        state = _reverse_play(floor, tier, rng)
        if not set(state.boxes) & set(state.layout.targets):
            return state
    raise PuzzleError(
        f"tier {tier.name}: no Sokoban room with {tier.num_pieces} boxes came up on "
        f"{tier.rows} x {tier.cols} cells in {MAX_ROOMS} tries: enlarge the board"
    )


def _random_floor(rows: int, cols: int, rng: np.random.Generator) -> list[int]:
    """Return the largest connected part of the inner cells left after random walls, ascending."""
    is_wall = rng.random((rows, cols)) < rng.uniform(*WALL_DENSITY)
    is_wall[[0, -1], :] = is_wall[:, [0, -1]] = True
    unvisited = set(np.flatnonzero(~is_wall).tolist())
    largest: list[int] = []
    while unvisited:
        part = [unvisited.pop()]
        for cell in part:  # grows while it is walked
            for neighbor in (cell - cols, cell + cols, cell - 1, cell + 1):
                if neighbor in unvisited:
                    unvisited.remove(neighbor)
                    part.append(neighbor)
        largest = max(largest, part, key=len)
    return sorted(largest)


def _reverse_play(floor: list[int], tier: Tier, rng: np.random.Generator) -> SokobanState:
    """Return the room after random backward play from a random solved position."""
    player, *targets = rng.permutation(floor)[: tier.num_pieces + 1].tolist()
    num_reverse = int(rng.integers(*REVERSE_STEPS_PER_BOX)) * tier.num_pieces
    num_steps = num_reverse + int(rng.integers(MAX_DISPLACEMENT + 1))
    steps = np.array((-tier.cols, tier.cols, -1, 1))[rng.integers(4, size=num_steps)].tolist()
    pulls = rng.random(num_steps) < PULL_SHARE
    pulls[num_reverse:] = False
    open_cells = set(floor)
    boxes = set(targets)
    for step, pulls_box in zip(steps, pulls.tolist(), strict=True):
        ahead, behind = player + step, player - step
        if ahead not in open_cells or ahead in boxes:
            continue
        if pulls_box and behind in boxes:
            boxes.remove(behind)
            boxes.add(player)
        player = ahead
    layout = SokobanLayout(
        rows=tier.rows,
        cols=tier.cols,
        walls=bytes(cell not in open_cells for cell in range(tier.rows * tier.cols)),
        targets=tuple(sorted(targets)),
    )
    return SokobanState(layout=layout, player=player, boxes=tuple(sorted(boxes)))
