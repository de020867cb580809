"""Playthroughs as text: every message, answer and cost of fixed games.

``python -m tests.golden.make`` writes them anew; a changed line is read in review.
"""

from __future__ import annotations

from pathlib import Path

from cast_ray.env import TextEnv
from cast_ray.games import get_game
from solver_actors.solvers import get_solver_entry

FOLDER = Path(__file__).parent
SOKOBAN_ROOM = "#######\n#P____#\n#_XXO_#\n#_O___#\n#######"
SOKOBAN_EPISODES = {
    "solved after detours": [
        "A wall, I believe.\n```Up```",
        "Right",
        "```Right``` or rather ```Sideways```",
        "```action\ndown\n```",
        "```4``` ```",
        "```Up```",
        "```Right```",
        "```Down```",
        "```Right```",
    ],
    "deadlock": ["```2```", "```2```", "```4```", "```4```", "```1```"],
    "turn budget": ["```Left```", "```Down```", "```Up```"],
}
"""What the policy answers; the last episode has as many turns as answers."""


def playthrough(game_name: str, board: str, answers: list[str], *, turn_budget: int) -> str:
    """Return one episode as text: what the policy reads and writes, and N after each turn."""
    game = get_game(game_name)
    state = game.decode(board)
    solver = get_solver_entry(game_name).build(state)
    env = TextEnv(game, turn_budget=turn_budget, is_dead=solver.is_dead)
    lines = ["[user]", env.reset(state), f"[N = {solver.cost_to_go([state])[0]:g}]"]
    for answer in answers:
        turn = env.step(answer)
        cost = solver.cost_to_go([turn.state])[0]
        lines += ["[policy]", answer]
        lines += [f"[action = {turn.action!r}, effect = {turn.effect}, N = {cost:g}]"]
        lines += ["[user]", turn.message] if turn.message else [f"[end = {turn.end_reason}]"]
        if turn.end_reason:
            break
    return "\n".join(lines)


def sokoban() -> str:
    """Return the rules and three episodes of one room."""
    parts = ["[system]", get_game("sokoban").rules]
    for title, answers in SOKOBAN_EPISODES.items():
        budget = len(answers) if title == "turn budget" else 30
        episode = playthrough("sokoban", SOKOBAN_ROOM, answers, turn_budget=budget)
        parts += ["", f"=== {title} ===", episode]
    return "\n".join(parts) + "\n"


GOLDEN = {"sokoban.txt": sokoban}

if __name__ == "__main__":
    for name, make in GOLDEN.items():
        (FOLDER / name).write_text(make())
