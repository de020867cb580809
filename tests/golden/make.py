"""Playthroughs as text: every message, answer and cost of fixed games.

``python -m tests.golden.make`` writes them anew; a changed line is read in review.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from cast_ray.envs.text_env import TextEnv
from cast_ray.games import get_game
from solver_actors.registry import get_solver_entry

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
"""What the policy answers; an episode of this title has as many turns as answers."""
MINEFIELD = "01+...\n02....\n01+...\n02....\n01+..."
MINESWEEPER_EPISODES = {
    "won after detours": [
        "The middle must be safe.\nreveal 1 2",
        "```dig 1 2```",
        "```reveal 5 0```",
        "```Reveal 0 0```",
        "```flag 0 1```",
        "```flag 2 5```",
        "```reveal 2 5```",
        "```action\nREVEAL 0 5, then flag 0 2\n```",
        "```flag 2 2```",
        "```reveal 3 2```",
        "```flag 2 5```",
        "```reveal 2 5```",
        "```reveal 1 2```",
    ],
    "mine hit": ["```reveal 1 2```", "```reveal 4 2```"],
    "turn budget": ["```flag 0 2```", "```flag 0 2```", "```reveal 1 2```"],
}
GUESSES = "....+\n+.+21\n++210\n22100\n00000"
"""The peek-free solver hits a mine."""
GUESS_EPISODES = {
    "a board on which the solver loses, and a rescue": [
        "```flag 0 4```",
        "```reveal 0 0```",
        "```reveal 0 1```",
        "```reveal 0 2```",
        "```reveal 0 3```",
        "```reveal 1 1```",
    ],
    "the solver loses, and so does the policy": ["```reveal 0 1```", "```reveal 1 2```"],
}
CAR_PARK = "..C...\n..C.B.\nAA..B.\n....B.\nx..DD.\n......"
RUSH_HOUR_EPISODES = {
    "solved after detours": [
        "The red car is free, I believe.\n```A+4```",
        "A+1",
        "```drive A```",
        "```A+0```",
        "```Q+1```",
        "```B+1```",
        "```D-3```",
        "```C-1```",
        "```action\n(d - 2)\n```",
        "```B```  ```B+2```",
        "```C+1```",
        "```C-1```",
        "```[A+]```",
        "```A+3```",
    ],
    "turn budget": ["```D+1```", "```D-1```", "```B+1```"],
}


def playthrough(game_name: str, board: str, answers: list[str], *, turn_budget: int) -> str:
    """Return one episode as text: what the policy reads and writes, and N after each turn."""
    game = get_game(game_name)
    state = game.decode(board)
    entry = get_solver_entry(game_name)
    solver = entry.build(state)
    is_dead = solver.is_dead if entry.has_deadlocks else None
    env = TextEnv(game, state, turn_budget=turn_budget, is_dead=is_dead)
    letter = "K" if game_name == "minesweeper" else "N"
    lines = ["[user]", env.start(), f"[{letter} = {solver.cost_to_go([state])[0]:g}]"]
    for answer in answers:
        turn = env.step(answer)
        cost = solver.cost_to_go([env.position])[0]
        lines += ["[policy]", answer]
        lines += [f"[action = {turn.action!r}, effect = {turn.effect}, {letter} = {cost:g}]"]
        lines += ["[user]", turn.message] if turn.message else [f"[end = {turn.end_reason}]"]
        if turn.end_reason:
            break
    return "\n".join(lines)


def playthroughs(game_name: str, *boards: tuple[str, dict[str, list[str]]]) -> str:
    """Return the rules of a game, and for each board its episodes by title."""
    parts = ["[system]", get_game(game_name).rules]
    for board, episodes in boards:
        for title, answers in episodes.items():
            budget = len(answers) if title == "turn budget" else 30
            episode = playthrough(game_name, board, answers, turn_budget=budget)
            parts += ["", f"=== {title} ===", episode]
    return "\n".join(parts) + "\n"


GOLDEN: dict[str, Callable[[], str]] = {
    "sokoban.txt": partial(playthroughs, "sokoban", (SOKOBAN_ROOM, SOKOBAN_EPISODES)),
    "minesweeper.txt": partial(
        playthroughs,
        "minesweeper",
        (MINEFIELD, MINESWEEPER_EPISODES),
        (GUESSES, GUESS_EPISODES),
    ),
    "rush_hour.txt": partial(playthroughs, "rush_hour", (CAR_PARK, RUSH_HOUR_EPISODES)),
}

if __name__ == "__main__":
    for name, make in GOLDEN.items():
        (FOLDER / name).write_text(make())
