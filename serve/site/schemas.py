"""Requests and answers of the service, as pydantic models: strict, without unknown fields.

A cost is an integer, ``"dead"`` (infinite), ``"unknown"``, or null where it is withheld: in a game
that hides part of its state, costs are those of the true board and shown when the game is over.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Cost = int | Literal["dead", "unknown"] | None
Player = Literal["agent", "solver", "human"]
_Seed = Annotated[int, Field(ge=0, lt=1 << 53)]
"""JavaScript numbers are exact up to here."""
_Name = Annotated[str, Field(min_length=1, max_length=60)]
_MAX_TEXT = 20_000
_MAX_ROWS = 1024
_Rows = Annotated[
    list[Annotated[str, Field(max_length=_MAX_ROWS)]], Field(min_length=1, max_length=_MAX_ROWS)
]

SOKOBAN = {
    "game": "sokoban",
    "board": ["######", "#P___#", "#_XO_#", "#____#", "######"],
}
RUSH_HOUR = {"game": "rush_hour", "board": "..C.....C.B.AA..B.....B.x..DD......."}
MINEFIELD = {
    "game": "minesweeper",
    "rows": 5,
    "cols": 5,
    "mines": [[0, 3], [2, 1], [4, 4]],
    "first_click": [0, 0],
}
MINEFIELD_SEEN = {
    "game": "minesweeper",
    "visible": ["001..", "112..", ".....", ".....", "....."],
    "num_mines": 3,
}


def _examples(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": list(examples)})


class PuzzleFields(BaseModel):
    """A board: its text or rows, Minesweeper's layout, or the tier and seed to make one from."""

    model_config = _examples(SOKOBAN, RUSH_HOUR, MINEFIELD, {"game": "sokoban", "tier": "id"})

    game: _Name
    board: Annotated[str, Field(max_length=_MAX_TEXT)] | _Rows | None = Field(
        None, description="One text, or one per row."
    )
    tier: _Name | None = Field(None, description="Make a board of this tier instead.")
    seed: _Seed = Field(0, description="Of the board that is made.")
    rows: int | None = Field(None, ge=1, le=_MAX_ROWS, description="Minesweeper: of the board.")
    cols: int | None = Field(None, ge=1, le=_MAX_ROWS)
    mines: Annotated[list[Annotated[list[int], Field(max_length=2)]], Field(max_length=1024)] | (
        None
    ) = Field(None, description="Minesweeper: row and column of each.")
    revealed: _Rows | None = Field(None, description="Minesweeper: 0 and 1, one text per row.")
    flags: _Rows | None = None
    first_click: Annotated[list[int], Field(max_length=2)] | None = Field(
        None, description="Minesweeper: the first cell opened, instead of revealed and flags."
    )


class Sampled(BaseModel):
    """How the agent answers."""

    temperature: float = Field(0.0, ge=0.0, le=2.0, description="0 = always the likeliest token.")
    sampling_seed: _Seed = Field(0, description="The same seed gives the same answers.")


class MoveRequest(PuzzleFields, Sampled):
    """Request for one move."""

    model_config = _examples(SOKOBAN, RUSH_HOUR, MINEFIELD)


class MovesRequest(Sampled):
    """Request for one move on each of many boards."""

    model_config = _examples({"puzzles": [SOKOBAN, RUSH_HOUR]})

    puzzles: Annotated[list[PuzzleFields], Field(min_length=1, max_length=256)]


class EpisodeRequest(PuzzleFields, Sampled):
    """Request for an episode."""

    model_config = _examples(SOKOBAN | {"player": "agent"}, RUSH_HOUR | {"player": "human"})

    player: Player = "agent"
    turn_budget: int | None = Field(None, ge=1, le=500, description="null = that of the tier.")
    delay_ms: int = Field(0, ge=0, le=2000, description="A pause after every turn, to watch.")


class ActionRequest(BaseModel):
    """A human's action."""

    model_config = _examples({"action": "Right"}, {"action": "A+1"}, {"action": "reveal 3 3"})

    action: str = Field(min_length=1, max_length=100)


class BoardRequest(BaseModel):
    """Request for a new board."""

    model_config = _examples({"game": "sokoban", "tier": "id", "seed": 7})

    game: _Name
    tier: _Name
    seed: _Seed = 0


class SolveRequest(PuzzleFields):
    """Request for what the solver knows about a board."""

    model_config = _examples(SOKOBAN | {"temperature": 1.0}, RUSH_HOUR, MINEFIELD_SEEN, MINEFIELD)

    visible: _Rows | None = Field(
        None,
        description="Minesweeper as the player sees it: . hidden, F flag, 0 to 8; with num_mines "
        "and without a layout.",
    )
    num_mines: int | None = Field(None, ge=0, le=_MAX_ROWS)
    temperature: float | None = Field(
        None, gt=0, le=100, description="Also return the soft-optimal teacher's probabilities."
    )


class Board(BaseModel):
    """What a player sees of a board."""

    rows: list[str]
    text: str = Field(description="What the policy reads.")
    mines: list[tuple[int, int]] | None = Field(
        description="Minesweeper, once the game is over: row and column of each."
    )
    picture: str | None = Field(
        default=None, description="Of a plug-in's stored game, as a data URI."
    )
    is_text: bool = Field(default=False, description="Whether it is prose and no grid.")


class Analysis(BaseModel):
    """What the solver knows about a board."""

    cost: Cost = Field(description="Least moves to the goal.")
    best: str | None
    q: dict[str, Cost] | None = Field(description="The cost after each action, best or not.")
    line: list[str] | None = Field(description="One optimal line to the goal.")
    teacher: dict[str, float] | None
    mines: list[list[float | None]] | None = Field(
        description="Minesweeper: mine probability of every hidden cell, from what is open alone."
    )


class Advantages(BaseModel):
    """The advantages of a turn in training."""

    shifted: float | None
    solver: float | None
    step: float | None
    turn: float | None


class Turn(BaseModel):
    """One answer and what it did."""

    turn: int
    board: Board
    board_after: Board
    answer: str
    action: str
    effect: Literal["changed", "ineffective", "illegal", "invalid", "truncated"]
    feedback: str
    cost_before: Cost
    cost_after: Cost
    analysis: Analysis | None = None
    regret: int | None = Field(description="Moves lost compared with the best action.")
    excess_risk: float | None = Field(
        None, description="Minesweeper: mine probability of the cell minus that of the safest cell."
    )
    num_tokens: int | None = None
    seconds: float | None = None
    advantages: Advantages | None = None


class Problem(BaseModel):
    """An error: a stable code, a sentence, and the field of the request."""

    code: str
    message: str
    field: str | None
    type: str
    param: str | None


class ProblemBody(BaseModel):
    """The body of every error."""

    error: Problem


class Move(Turn):
    """One move of the agent."""

    model: str


class Moves(BaseModel):
    """A move or an error for each board, in order."""

    results: list[Move | ProblemBody]


class Episode(BaseModel):
    """A game from its first board to its latest."""

    id: str
    game: str
    tier: str | None
    player: Player
    model: str | None
    seed: int
    turn_budget: int
    board: Board
    board_now: Board
    analysis: Analysis | None
    status: Literal["playing", "over"]
    end_reason: str | None
    error: Problem | None
    turns: list[Turn]
    created: str


class NewBoard(BaseModel):
    """A new board; other calls refer to it by ``game``, ``tier`` and ``seed``."""

    game: str
    tier: str
    seed: int
    board: Board


class Solved(Analysis):
    """An analysis and its board."""

    game: str
    board: Board
    privileged: bool = Field(description="Whether it used what a player cannot see.")


class TierInfo(BaseModel):
    """One level of difficulty."""

    name: str
    rows: int
    cols: int
    turn_budget: int


class GameInfo(BaseModel):
    """One game."""

    name: str
    title: str
    rules: str
    tiers: list[TierInfo]


class Games(BaseModel):
    """All games."""

    games: list[GameInfo]


class About(BaseModel):
    """What this service offers."""

    name: str
    version: str
    model: str | None
    players: list[Player]
    runs: bool
    limits: dict[str, float]
