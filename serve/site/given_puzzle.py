"""The board that a request describes, or what is wrong with it and where."""

from __future__ import annotations

from collections.abc import Sequence

from cast_ray.errors import PuzzleError
from cast_ray.games import game_names, get_game
from cast_ray.games.analysis import Analyst
from cast_ray.games.json_state import state_of
from cast_ray.games.puzzles import Puzzle
from serve.site import schemas
from serve.site.problems import ApiProblem

PUZZLE_KEYS = ("board", "rows", "cols", "mines", "revealed", "flags", "first_click")
_DEFAULT_TIER = "id"


async def given_puzzle(analyst: Analyst, fields: schemas.PuzzleFields) -> Puzzle:
    """Return the board that a request describes.

    Raises:
        ApiProblem: it is described twice, or not at all, or broken.
    """
    _check_game(fields.game)
    given = {key: getattr(fields, key) for key in PUZZLE_KEYS}
    given = {key: value for key, value in given.items() if value is not None}
    if fields.tier is not None:
        if given:
            raise ApiProblem(
                422,
                "field_invalid",
                f"tier and {next(iter(given))} are both given: leave one of them out",
                field="tier",
            )
        return await made_puzzle(analyst, fields.game, fields.tier, fields.seed)
    try:
        state = state_of({"game": fields.game, **given}).state
    except PuzzleError as error:
        raise ApiProblem(422, "board_invalid", str(error), field="board") from None
    game = get_game(fields.game)
    return _as_puzzle(fields.game, "", game.encode(state), seed=0)


async def made_puzzle(analyst: Analyst, game: str, tier: str, seed: int) -> Puzzle:
    """Return a board of a tier, made from a seed.

    Raises:
        ApiProblem: there is no such game or tier.
    """
    _check_game(game)
    tiers: Sequence[str] = list(get_game(game).tiers)
    if tier not in tiers:
        raise ApiProblem(
            422,
            "field_invalid",
            f"tier of {game} must be one of {', '.join(tiers)}",
            field="tier",
        )
    return _as_puzzle(game, tier, await analyst.new_board(game, tier, seed), seed=seed)


def _as_puzzle(game: str, tier: str, board: str, *, seed: int) -> Puzzle:
    return Puzzle(
        game=game,
        tier=tier,
        puzzle_id="",  # nobody compares it
        board=board,
        cost_to_go=None,
        cost_status="unknown",
        seed=seed,
    )


def _check_game(name: str) -> None:
    if name not in game_names():
        raise ApiProblem(
            422, "game_unknown", f"game must be one of {', '.join(game_names())}", field="game"
        )


def turn_budget_of(puzzle: Puzzle) -> int:
    """Return the tier's budget; for a board of none that of the standard tier."""
    tiers = get_game(puzzle.game).tiers
    default = _DEFAULT_TIER if _DEFAULT_TIER in tiers else next(iter(tiers))
    return tiers[puzzle.tier or default].turn_budget
