"""Sokoban as a plug-in: what the built-in game has, handed over as a package of a user's does."""

from cast_ray.envs.gym.sokoban import SOKOBAN_RULES
from cast_ray.games.generators.sokoban import generate_sokoban
from cast_ray.games.generators.sokoban_reach import is_sokoban_winnable
from cast_ray.games.plugins import GamePlugin
from cast_ray.games.sokoban import Sokoban
from solver_actors.sokoban.entry import SOLVER


class BoxPush(Sokoban):
    """The same rules."""

    name = "box_push"


_COLOURS = {"#": "#737c88", "P": "#0a4f8c", "S": "#0a4f8c", "X": "#c77d1a", "*": "#1f8a6c"}


def drawn(text: str) -> str:
    """Return a board as a picture: a square of a colour for each thing on it."""
    cells = [
        f'<rect x="{col}" y="{row}" width="1" height="1" fill="{_COLOURS[symbol]}"/>'
        for row, line in enumerate(text.splitlines())
        for col, symbol in enumerate(line)
        if symbol in _COLOURS
    ]
    box = f"0 0 {max(map(len, text.splitlines()))} {len(text.splitlines())}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}">{"".join(cells)}</svg>'


BOX_PUSH = GamePlugin(
    game=BoxPush(),
    generate=generate_sokoban,
    is_winnable=is_sokoban_winnable,
    solver=SOLVER,
    numeric=SOKOBAN_RULES,
    drawing=drawn,
)
