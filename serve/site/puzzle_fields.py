"""Parse the board that a request describes, or name the field that is wrong."""

from __future__ import annotations

from cast_ray.errors import PuzzleError
from cast_ray.games import game_names, get_game
from cast_ray.games.analysis import Analyst
from cast_ray.games.json_state import parse_state
from cast_ray.games.puzzles import Puzzle
from serve.site import schemas
from serve.site.problems import ApiProblem, invalid_field

PUZZLE_KEYS = ("board", "rows", "cols", "mines", "revealed", "flags", "first_click")
_DEFAULT_TIER = "id"


async def parse_puzzle(analyst: Analyst, fields: schemas.PuzzleFields) -> Puzzle:
    """Return the board that a request describes.

    Raises:
        ApiProblem: it is described twice, or not at all, or broken.
    """
    check_game(fields.game)
    given = {key: getattr(fields, key) for key in PUZZLE_KEYS}
    given = {key: value for key, value in given.items() if value is not None}
    if fields.tier is not None:
        if given:
            raise invalid_field(
                "tier", f"tier and {next(iter(given))} are both given: leave one of them out"
            )
        return await make_puzzle(analyst, fields.game, fields.tier, fields.seed)
    try:
        state = parse_state({"game": fields.game, **given}).state
        if state is None:
            raise PuzzleError("the board is what a player sees: give it as visible with num_mines")
    except PuzzleError as error:
        raise ApiProblem(422, "board_invalid", str(error), field="board") from None
    game = get_game(fields.game)
    return Puzzle(game=fields.game, tier="", puzzle_id="", board=game.encode(state))


async def make_puzzle(analyst: Analyst, game: str, tier: str, seed: int) -> Puzzle:
    """Return a board of a tier, made from a seed.

    Raises:
        ApiProblem: there is no such game or tier.
    """
    check_game(game)
    tiers = get_game(game).tiers
    if tier not in tiers:
        raise invalid_field("tier", f"tier of {game} must be one of {', '.join(tiers)}")
    board = await analyst.new_board(game, tier, seed)
    return Puzzle(game=game, tier=tier, puzzle_id="", board=board, seed=seed)


def check_game(name: str) -> None:
    """Raise ApiProblem unless there is a game of that name."""
    if name not in game_names():
        raise ApiProblem(
            422, "game_unknown", f"game must be one of {', '.join(game_names())}", field="game"
        )


def turn_budget_of(puzzle: Puzzle) -> int:
    """Return the turn budget of the puzzle's tier, by default that of the standard tier."""
    tiers = get_game(puzzle.game).tiers
    default = _DEFAULT_TIER if _DEFAULT_TIER in tiers else next(iter(tiers))
    return tiers[puzzle.tier or default].turn_budget
