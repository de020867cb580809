"""Games, boards, the agent and the solver over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import BaseModel

from cast_ray.errors import CastRayError
from cast_ray.games import game_names, get_game
from cast_ray.games.analysis import Analyst
from serve.site import schemas
from serve.site.agent import Agent
from serve.site.problems import ApiProblem, invalid_field, problem_of
from serve.site.puzzle_fields import (
    PUZZLE_KEYS,
    check_game,
    make_puzzle,
    parse_puzzle,
    turn_budget_of,
)
from serve.site.session import Session, SessionOptions
from serve.site.sessions import Sessions
from serve.site.turn_values import shown_analysis, shown_board

PING_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the routes work with."""

    analyst: Analyst
    agent: Agent | None
    sessions: Sessions
    games_with_deadlocks: frozenset[str]
    """Those whose infinite costs are proofs that end a game."""
    about: schemas.About


router = APIRouter(prefix="/api")


def _site(request: Request) -> Site:
    return request.app.state.site


@router.get("/about", tags=["games"])
async def about(request: Request) -> schemas.About:
    """What this service offers."""
    return _site(request).about


@router.get("/games", tags=["games"])
async def games() -> schemas.Games:
    """All games, with rules and tiers."""
    return schemas.Games(
        games=[
            schemas.GameInfo(
                name=name,
                title=game.title,
                rules=game.rules,
                tiers=[
                    schemas.TierInfo(
                        name=tier.name,
                        rows=tier.rows,
                        cols=tier.cols,
                        turn_budget=tier.turn_budget,
                    )
                    for tier in game.tiers.values()
                ],
            )
            for name, game in ((name, get_game(name)) for name in game_names())
        ]
    )


@router.post("/boards", tags=["games"])
async def new_board(request: Request, body: schemas.BoardRequest) -> schemas.NewBoard:
    """Make a new board; other calls refer to it by game, tier and seed."""
    puzzle = await make_puzzle(_site(request).analyst, body.game, body.tier, body.seed)
    return schemas.NewBoard(
        game=body.game,
        tier=body.tier,
        seed=body.seed,
        board=shown_board(get_game(body.game), puzzle.board, is_over=False),
    )


@router.post("/move", tags=["agent"])
async def move(request: Request, body: schemas.MoveRequest) -> schemas.Move:
    """The agent's move on a board, with its reasoning."""
    return await _move(_site(request), body, body)


@router.post("/moves", tags=["agent"])
async def moves(request: Request, body: schemas.MovesRequest) -> schemas.Moves:
    """The agent's move on each of many boards; a broken one does not affect the others."""
    site = _site(request)

    async def one(number: int, fields: schemas.PuzzleFields) -> schemas.Move | schemas.ProblemBody:
        try:
            return await _move(site, fields, body)
        except CastRayError as error:
            return schemas.ProblemBody(**problem_of(error, field=f"puzzles[{number}]").body)

    return schemas.Moves(
        results=await asyncio.gather(*(one(*item) for item in enumerate(body.puzzles)))
    )


@router.post("/episodes", status_code=201, tags=["episodes"])
async def begin_episode(
    request: Request, response: Response, body: schemas.EpisodeRequest
) -> schemas.Episode:
    """Begin a game. Agent and solver play by themselves: follow the events."""
    site = _site(request)
    agent = _agent(site) if body.player == "agent" else None
    puzzle = await parse_puzzle(site.analyst, body)
    session = await site.sessions.begin(
        SessionOptions(
            puzzle=puzzle,
            player=body.player,
            model=agent.model if agent else None,
            turn_budget=body.turn_budget or turn_budget_of(puzzle),
            temperature=body.temperature,
            sampling_seed=body.sampling_seed,
            delay_s=body.delay_ms / 1000,
            ends_when_dead=body.game in site.games_with_deadlocks,
            answer_tokens=agent.limits.max_answer_tokens if agent else 0,
        )
    )
    response.headers["location"] = f"api/episodes/{session.id}"
    try:
        return await session.episode()
    except BaseException:  # nobody learns of this game, also where the caller has left
        await site.sessions.remove(session.id)
        raise


@router.get("/episodes/{episode_id}", tags=["episodes"])
async def episode(request: Request, episode_id: str) -> schemas.Episode:
    """A game as it is now."""
    return await _site(request).sessions.get(episode_id).episode()


@router.delete("/episodes/{episode_id}", status_code=204, tags=["episodes"])
async def end_episode(request: Request, episode_id: str) -> None:
    """End a game and forget it."""
    await _site(request).sessions.remove(episode_id)


@router.post("/episodes/{episode_id}/actions", tags=["episodes"])
async def act(request: Request, episode_id: str, body: schemas.ActionRequest) -> schemas.Turn:
    """A human's action."""
    return await _site(request).sessions.get(episode_id).act(body.action)


@router.get("/episodes/{episode_id}/events", tags=["episodes"], response_class=StreamingResponse)
async def events(
    request: Request,
    episode_id: str,
    after: Annotated[int, Query(ge=-1, description="Begin after this turn.")] = -1,
    last_event_id: Annotated[str | None, Header(description="The same; overrides after.")] = None,
) -> StreamingResponse:
    """Server-sent events: `turn` (its id is its number), then `end` with the complete game."""
    session = _site(request).sessions.get(episode_id)
    if last_event_id is not None and last_event_id.isdecimal():
        after = int(last_event_id[:9])
    return StreamingResponse(_events(session, after), media_type="text/event-stream")


@router.post("/solve", tags=["solver"])
async def solve(request: Request, body: schemas.SolveRequest) -> schemas.Solved:
    """What the solver knows of a board: cost, all actions, one optimal line, the soft teacher."""
    analyst = _site(request).analyst
    if body.visible is not None:
        return await _solve_visible(analyst, body)
    if body.num_mines is not None:
        raise invalid_field("num_mines", "num_mines goes with visible: leave it out")
    puzzle = await parse_puzzle(analyst, body)
    hides = get_game(puzzle.game).has_hidden_state
    is_made = body.tier is not None and hides
    found = await analyst.analyse(
        puzzle.game,
        [puzzle.board],
        privileged=not is_made,  # a layout that the caller did not send stays hidden
        temperature=None if is_made else body.temperature,
        with_line=not is_made,
    )
    return schemas.Solved(
        **shown_analysis(found[0]).model_dump(),
        game=puzzle.game,
        board=shown_board(get_game(puzzle.game), puzzle.board, is_over=False),
        privileged=hides and not is_made,
    )


async def _solve_visible(analyst: Analyst, body: schemas.SolveRequest) -> schemas.Solved:
    assert body.visible is not None
    check_game(body.game)
    if not get_game(body.game).has_hidden_state:
        raise invalid_field("visible", f"{body.game} hides nothing: use board")
    given = [key for key in ("tier", *PUZZLE_KEYS) if getattr(body, key) is not None]
    if given:
        raise invalid_field(
            given[0], f"visible and {given[0]} are both given: leave one of them out"
        )
    if body.num_mines is None:
        raise invalid_field("num_mines", "num_mines is missing: give it with visible")
    if body.temperature is not None:
        raise invalid_field(
            "temperature", "temperature needs a complete layout: leave it out with visible"
        )
    found = await analyst.analyse_visible(body.game, body.visible, body.num_mines)
    return schemas.Solved(
        **shown_analysis(found).model_dump(),
        game=body.game,
        board=schemas.Board(rows=body.visible, text="\n".join(body.visible), mines=None),
        privileged=False,
    )


async def _move(site: Site, fields: schemas.PuzzleFields, sampled: schemas.Sampled) -> schemas.Move:
    agent = _agent(site)
    puzzle = await parse_puzzle(site.analyst, fields)
    session = await site.sessions.move(
        SessionOptions(
            puzzle=puzzle,
            player="agent",
            model=agent.model,
            turn_budget=turn_budget_of(puzzle),
            temperature=sampled.temperature,
            sampling_seed=sampled.sampling_seed,
            max_turns=1,
            ends_when_dead=False,
        )
    )
    return schemas.Move(**session.turns[0].model_dump(), model=agent.model)


def _agent(site: Site) -> Agent:
    if site.agent is None:
        raise ApiProblem(
            409, "no_agent", "no model is served here: start one with cast-ray serve MODEL"
        )
    return site.agent


async def _events(session: Session, after: int) -> AsyncIterator[bytes]:
    async for turn in session.follow(after, ping_s=PING_S):
        yield KEEPALIVE_COMMENT if turn is None else _event("turn", turn, number=str(turn.turn))
    yield _event("end", await session.episode())


def _event(name: str, data: BaseModel, *, number: str | None = None) -> bytes:
    # In ASCII: FastAPI also breaks lines where Unicode does, which would tear a text in two.
    return format_sse_event(event=name, data_str=data.model_dump_json(ensure_ascii=True), id=number)
