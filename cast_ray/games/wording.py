"""The words in which games differ: what a cost counts, what infinite means, how one loses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GameWording:
    """What reports say about one game; the defaults suit a game in which infinite is a proof."""

    letter: str = "N"
    """The cost-to-go, as the paper calls it."""
    unit: str = "move"
    infinite: str = "lost"
    """An infinite cost."""
    lost: str = "lost by the rules"
    """The end reason ``lost``."""
    failure: str = "other"
    """The one of ``evaluation.scores.FAILURES`` that the end reason ``lost`` counts as."""
    hidden: str = "what is hidden"
    """What a privileged player sees and others do not."""
    meaning: str = (
        "the moves that the best player would still need. Lost means that no move can win any more."
    )
    """What the letter counts, and what an infinite cost says."""
    one_away: str = "one move away"
    to_infinite: str = "; a move after which no win is left costs all of N"
    """What a turn from a finite to an infinite cost earns; empty where there is no such turn."""
    from_infinite: str = ""
    """What a rescue earns, if it earns anything; empty where infinite is a proof."""
    judge: str = "the solver"
    """Who says what a turn was worth; empty = nobody."""


OF_REWARDS = GameWording(unit="point", judge="their rewards")
"""Of an environment without a solver, whose rewards are the credit."""
