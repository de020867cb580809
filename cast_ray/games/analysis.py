"""What exact solvers say about boards, who can be asked for it, and what a player may see.

The service asks an ``Analyst`` and does not know where its solvers run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, Unpack

from cast_ray.games.game import CellRisks, Game

CALLER: ContextVar[str] = ContextVar("CALLER", default="")
"""Who asks an analyst: a key or an address, so that none waits for another's many questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What a solver says about one board.

    Where a game hides part of its state, ``cost``, ``action_costs``, ``line`` and ``teacher`` are
    of the true state and so privileged: only finished episodes get them. None = withheld, or not
    asked for.
    """

    cost: float | None
    """In the game's moves; ``inf`` = infinite, NaN = unknown, None = withheld."""
    action_costs: Mapping[str, float] | None
    """Cost after each scored action, in the game's canonical order; None = withheld, or the
    board is too large for the solver."""
    best: str | None
    """The first action of least cost; None at cost 0, infinite or unknown. Where a game hides part
    of its state and costs are withheld, what ``SolverEntry.next_action`` does, whatever the
    cost, so that a missing action reveals nothing."""
    line: tuple[str, ...] | None
    """One way to the goal, as ``SolverEntry.next_action`` goes: an optimal one where each move
    costs one. None where the cost is infinite or unknown, where following it took too long, or if
    not asked for."""
    teacher: Mapping[str, float] | None
    """Soft-optimal probability of each scored action; None in a decided game, where a cost is
    unknown, or if not asked for."""
    cell_risks: CellRisks | None
    """What a player can know about hidden cells (``SolverEntry.cell_risks``); None in games without
    risk, in lost episodes, on boards too large for the solver, and out of its budget."""


class AnalysisOptions(TypedDict, total=False):
    """How boards are analysed."""

    privileged: bool
    """Whether the true state may be used, as by default; changes nothing in a game that hides
    nothing."""
    temperature: float | None
    """Of the soft-optimal teacher, in the game's moves, > 0; None, the default, = no teacher."""
    with_line: bool
    """Whether to follow the best actions to the goal; not by default."""


class Analyst(Protocol):
    """Analyses boards, somewhere. Belongs to one event loop."""

    async def analyse(
        self, game: str, boards: Sequence[str], **options: Unpack[AnalysisOptions]
    ) -> Sequence[Analysis]:
        """Return one analysis per board, in their order.

        Args:
            game: name of the game.
            boards: texts of ``Game.encode``, at least one, all of one layout.
            options: what else is wanted, and may be used.

        Raises:
            PuzzleError: a board is broken, or of another layout than the first.
            ConfigError: there is no such game.
            RemoteTimeout: no answer in time.
            ActorLostError: the process that answers does not come back.
        """
        ...

    async def analyse_visible(self, game: str, rows: Sequence[str], num_hidden: int) -> Analysis:
        """Return what can be said from what a player sees alone: nothing privileged.

        Args:
            game: name of a game that hides part of its state.
            rows: as ``Game.visible_rows`` returns them.
            num_hidden: how many ``Game.hidden_cells`` the board has.

        Raises:
            PuzzleError: the rows are no board, or no state looks like this.
            ConfigError: the game has no solver that reads such rows.
            RemoteTimeout, ActorLostError: as in ``analyse``.
        """
        ...

    async def new_board(self, game: str, tier: str, seed: int) -> str:
        """Return a start state of a tier, as ``Game.encode`` writes it; equal seeds, equal boards.

        Raises:
            PuzzleError: the generator found none.
            ConfigError: there is no such game or tier.
            RemoteTimeout, ActorLostError: as in ``analyse``.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleBoard:
    """One state, without what is hidden from the player."""

    rows: tuple[str, ...]
    """One text per row (``Game.visible_rows``)."""
    text: str
    """What the policy sees (``Game.observe``)."""
    mines: tuple[tuple[int, int], ...] | None
    """What was hidden (``Game.hidden_cells``), once the episode is over; None before, and in games
    that hide nothing."""


def visible_board(game: Game[Any], state: Any, *, is_over: bool) -> VisibleBoard:
    """Return what may be shown of a state.

    Args:
        game: the rules. Any: each game has a state type of its own.
        state: of that game.
        is_over: whether the episode has ended, by the rules or otherwise: nothing is hidden then.
    """
    return VisibleBoard(
        rows=game.visible_rows(state),
        text=game.observe(state),
        mines=game.hidden_cells(state) if is_over else None,
    )
