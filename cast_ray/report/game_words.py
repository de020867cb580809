"""The words in which games differ: what the cost counts, and what an infinite one means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GameWords:
    """What the report says of one game; the defaults suit a game whose infinite is a proof."""

    letter: str = "N"
    """The cost-to-go, as the paper calls it."""
    unit: str = "move"
    infinite: str = "dead"
    """An infinite cost."""
    infinite_style: str = "dead"
    """CSS class of an infinite cost: only a proof is marked as the end."""
    lost: str = "lost by the rules"
    """The end reason ``lost``."""
    meaning: str = "the board’s cost-to-go by the exact solver"
    """What the letter stands for."""
    along_game: str = (
        "the moves that the best player would still need. Dead means that no move can win any more."
    )
    of_start: str = "the moves that the best player needs."
    one_away: str = "one move away"
    to_infinite: str = "; a move that kills the board costs all of N"
    """What a turn from a finite to an infinite cost earns; empty where none can occur."""
    from_infinite: str = ""
    """What a rescue earns, if it earns anything; empty where infinite is a proof."""
    harmful: str = "it led away from it, or lost it for good"
    mean_advantage: str = "Moves gained by a turn; 1 would be optimal play."
    failures: str = "Ended because the solver proved that no win is left, or by the rules."
    """How an episode is lost before its end; empty where it cannot be."""


_DEFAULT = GameWords()
_GAMES = {
    "minesweeper": GameWords(
        letter="K",
        unit="reveal",
        infinite="solver loses",
        infinite_style="loses",
        lost="hit a mine",
        meaning=(
            "the number of reveals that the peek-free solver would still need on this board, and "
            "1 more for each flag on a safe cell"
        ),
        along_game=(
            "the reveals that the peek-free solver would still need. “Solver loses” means that it "
            "would hit a mine from there: no proof, because another guess may win."
        ),
        of_start=(
            "the reveals that the peek-free solver needs. Boards on which it loses are left out."
        ),
        one_away="a flag on a safe cell",
        to_infinite="; a turn to a mine, or to a board on which the solver loses, costs all of K",
        from_infinite=(
            "; a guess that comes out well where the solver loses earns the K it leads to, and "
            "if it wins the number of safe cells"
        ),
        harmful=(
            "it put a flag on a safe cell, or led from where the solver wins to a mine or to where "
            "it loses"
        ),
        mean_advantage="Reveals gained by a turn; the solver’s own play gains 1.",
        failures="Ended because a mine was hit.",
    ),
    "rush_hour": GameWords(
        unit="slide",
        along_game="the slides that the best player would still need.",
        of_start="the slides that the best player needs.",
        one_away="one slide away",
        to_infinite="",
        harmful="it led away from it",
        mean_advantage="Slides gained by a turn; 1 would be optimal play.",
        failures="",
    ),
    "webshop": GameWords(lost="bought something else"),
}


def words_of(game: str) -> GameWords:
    """Return the words for a game; the default ones for a game that was added."""
    return _GAMES.get(game, _DEFAULT)
