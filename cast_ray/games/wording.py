"""The words in which games differ: what a cost counts, what infinite means, how one loses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GameWording:
    """What reports say about one game; the defaults suit a game in which infinite is a proof."""

    letter: str = "N"
    """The cost-to-go, as the paper calls it."""
    unit: str = "move"
    infinite: str = "dead"
    """An infinite cost."""
    infinite_style: str = "dead"
    """CSS class of an infinite cost: only a proof is marked as the end."""
    lost: str = "lost by the rules"
    """The end reason ``lost``."""
    failure: str = "other"
    """The one of ``evaluation.scores.FAILURES`` that the end reason ``lost`` counts as."""
    hidden: str = "what is hidden"
    """What a privileged player sees and others do not."""
    meaning: str = "the board’s cost-to-go by the exact solver"
    """What the letter stands for."""
    along_game: str = (
        "the moves that the best player would still need. Dead means that no move can win any more."
    )
    of_start: str = "the moves that the best player needs."
    one_away: str = "one move away"
    to_infinite: str = "; a move that kills the board costs all of N"
    """What a turn from a finite to an infinite cost earns; empty where there is no such turn."""
    from_infinite: str = ""
    """What a rescue earns, if it earns anything; empty where infinite is a proof."""
    judge: str = "the solver"
    """Who says what a turn was worth; empty = nobody."""
    progress: str = "the turn brought the board closer to its goal"
    harmful: str = "it led away from it, or lost it for good"
    mean_advantage: str = "Moves gained by a turn; 1 would be optimal play."
    failures: str = "Ended because the solver proved that no win is left, or by the rules."
    """How an episode is lost before its end; empty where it cannot be."""


OF_REWARDS = GameWording(
    unit="point",
    judge="their rewards",
    progress="the turn earned something",
    harmful="it cost something",
    mean_advantage="Reward of a turn.",
    failures="",
)
"""Of an environment without a solver, whose rewards are the credit."""
