"""A solver knows the states of one layout; those of any other it refuses."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from cast_ray.games.base import Game


def check_layout(game: Game[Any], layout: Hashable, states: Sequence[Any]) -> None:
    """Raise ValueError unless every state belongs to the layout.

    Args:
        game: the rules; its states have a ``layout``. Any: each game has a state type of its own.
        layout: what all states of the solver have in common.
        states: those that it is asked about.
    """
    known = layout
    for state in states:
        if state.layout is known:
            continue
        if state.layout != layout:
            raise ValueError(
                f"this solver holds another layout than that of {game.encode(state)!r}: build one "
                "for it"
            )
        known = state.layout  # states of one origin share the object
