"""Sokoban as a plug-in: what the built-in game has, handed over as a package of a user's does."""

from cast_ray.envs.gym.sokoban import SOKOBAN_RULES
from cast_ray.games.generators.sokoban import generate_sokoban
from cast_ray.games.generators.sokoban_reach import is_sokoban_winnable
from cast_ray.games.plugins import GamePlugin
from cast_ray.games.sokoban import Sokoban
from cast_ray.runs.report.boards.drawing import BoardDrawing
from cast_ray.runs.report.boards.sokoban import draw_sokoban, sokoban_legend
from solver_actors.sokoban.entry import SOKOBAN_SOLVER


class BoxPush(Sokoban):
    """The same rules."""

    name = "box_push"


BOX_PUSH = GamePlugin(
    game=BoxPush(),
    generate=generate_sokoban,
    is_winnable=is_sokoban_winnable,
    solver=SOKOBAN_SOLVER,
    numeric=SOKOBAN_RULES,
    drawing=BoardDrawing(draw=draw_sokoban, legend=sokoban_legend),
)
