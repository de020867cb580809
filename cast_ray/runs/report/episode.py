"""Finished episodes and boards as JSON values, as the page's player shows them (``player.js``)."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games import get_game, get_plugin
from cast_ray.games.analysis import visible_board
from cast_ray.games.costs import json_cost
from cast_ray.games.game import Effect, Game, ParseFailure
from cast_ray.games.registry import GAMES, hides_state
from cast_ray.games.turn_quality import turn_regrets
from cast_ray.runs.report.figures import plain
from cast_ray.runs.report.wording import words_of

_WITHOUT_EFFECT = (Effect.INEFFECTIVE, Effect.ILLEGAL, Effect.INVALID)


# Any: JSON values, and states, whose type each game has for itself.
def shown_episode(
    record: Mapping[str, Any], costs: Sequence[float], **more: Sequence[Any]
) -> dict[str, Any]:
    """Return an episode that is over: nothing is hidden, and nothing analysed.

    Args:
        record: columns of a trajectory or an attempt.
        costs: ``[T + 1]`` inf = infinite, NaN = unknown.
        more: ``[T]`` further fields of the turns.
    """
    game, effects = record["game"], record["effects"]
    known = _decoded(game, record["states"])
    boards = _boards(game, record["states"], known)
    is_scored = not all(map(math.isnan, costs))
    shown = [json_cost(cost) if is_scored else None for cost in costs]
    regrets = turn_regrets(costs, effects, game=game)
    turns = [
        {
            "turn": turn,
            "board": boards[turn],
            "board_after": boards[turn + 1],
            "answer": record["answers"][turn],
            "action": record["actions"][turn],
            "effect": effect,
            "feedback": _feedback(known[0], known[1][turn], record["answers"][turn])
            if known and effect in _WITHOUT_EFFECT
            else "",
            "cost_before": shown[turn],
            "cost_after": shown[turn + 1],
            "regret": regrets[turn],
            **{name: values[turn] for name, values in more.items()},
        }
        for turn, effect in enumerate(effects)
    ]
    names = ("game", "tier", "seed", "turn_budget", "end_reason")
    over = {"player": "agent", "status": "over", "board": boards[0], "board_now": boards[-1]}
    return {**{name: record[name] for name in names}, **over, "turns": turns}


def shown_boards(name: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return stored states; as plain text if they are not of a game that is installed here.

    A board has a ``picture``, a data URI, if it is a plug-in's that draws its boards.
    """
    return _boards(name, texts, _decoded(name, texts))


def _boards(
    name: str, texts: Sequence[str], known: tuple[Game[Any], list[Any]] | None
) -> list[dict[str, Any]]:
    if known is None:
        return [
            {"rows": text.splitlines(), "text": text, "mines": None, "is_text": True}
            for text in texts
        ]
    game, states = known
    drawing = None if name in GAMES else get_plugin(name).drawing
    boards = (asdict(visible_board(game, state, is_over=True)) for state in states)
    return [
        board | {"picture": drawing and _data_uri(drawing(text))}
        for board, text in zip(boards, texts, strict=True)
    ]


def player_data(episodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what ``report.js`` needs to show these episodes."""
    names = dict.fromkeys(episode["game"] for episode in episodes)
    return {"episodes": plain(episodes), "facts": {name: _facts(name) for name in names}}


def _facts(name: str) -> dict[str, Any]:
    """Return the facts that ``games.js`` needs about a game that it does not know."""
    words = words_of(name)
    facts = {"short": words.infinite, "lost": f"{words.lost.capitalize()}."}
    return asdict(words) | facts | {"hides": hides_state(name)}


def _decoded(name: str, texts: Sequence[str]) -> tuple[Game[Any], list[Any]] | None:
    """Return rules and states; None for a benchmark, a game that is not here, a broken text."""
    try:
        game = get_game(name)
        return game, [game.decode(text) for text in texts]
    except (ConfigError, PuzzleError):
        return None


def _data_uri(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _feedback(game: Game[Any], state: Any, answer: str) -> str:
    """Return what the rules said of an answer."""
    action = game.parse(answer)
    if isinstance(action, ParseFailure):
        return action.feedback
    return game.apply(state, action).feedback
