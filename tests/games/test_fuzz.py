"""Whatever text arrives, parsers answer and loaders refuse with PuzzleError, both at once.

Every test draws from a seed of its own, so a failure comes again. Texts are made cheaply, by plain
``random``: there are hundreds of thousands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from random import Random
from time import process_time
from typing import Any

import numpy as np
import pytest

from benchmarks.solvers import request_line
from cast_ray.errors import PuzzleError
from cast_ray.games import GAMES
from cast_ray.games.game import ParseFailure
from cast_ray.games.generators import GENERATORS
from cast_ray.games.json_state import parse_request

NUM_ANSWERS = 100_000
NUM_BOARDS = 10_000
MAX_CALL_S = 0.05
"""Of CPU time, for any one text."""
_REPEATS = 5
_LONGEST = 20_000

FENCE = "```"
SPACES = " \t\n\r\v\f\0\u00a0\u2003\u2028\u200b"
DIGITS = "0123456789²١９੩𝟗"
SIGNS = "`+-−＋()[]{}<>.,#*_~|/\\'\"$ſıKÅéﬂ\ud800"
NOISE = SPACES + DIGITS + SIGNS + "AaBbXxUupreveal"
TAGS = ("", "", "action\n", "TEXT ", "Python\n", "bash\t", "json\n", "action text ", "`")


def timed(call: Callable[[Any], Any], given: Any) -> Any:  # Any: texts, bytes, states, actions
    """Return what a call returns; AssertionError if it takes too long, which no pause explains."""
    begun = process_time()
    try:
        return call(given)
    finally:
        if process_time() - begun > MAX_CALL_S:
            fastest = min(seconds_of(call, given) for _ in range(_REPEATS))
            assert fastest <= MAX_CALL_S, f"{fastest:.3f} s for {given[:60]!r}… ({len(given)})"


def seconds_of(call: Callable[[Any], Any], given: Any) -> float:
    begun = process_time()
    with suppress(PuzzleError):
        call(given)
    return process_time() - begun


@cache
def random_answers() -> list[str]:
    """Return random bytes read as text: of all values, or of those that answers are made of."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 200, NUM_ANSWERS)
    lengths[::1_000] = rng.integers(5_000, _LONGEST, len(lengths[::1_000]))
    ends = np.cumsum(lengths).tolist()
    likely = np.frombuffer(
        b"```` \n\t0123489+-AaBbUupDownLeftRightrevealflag\xc2\xb2\xff", np.uint8
    )
    anything = rng.bytes(ends[-1])
    plausible = rng.choice(likely, ends[-1]).tobytes()
    texts: list[str] = []
    for number, (length, end) in enumerate(zip(lengths.tolist(), ends, strict=True)):
        raw = (plausible if number % 2 else anything)[end - length : end]
        is_latin = number % 4 < 2
        texts.append(raw.decode("latin-1") if is_latin else raw.decode("utf-8", "surrogateescape"))
    return texts


def near_actions(game: str) -> Iterator[str]:
    """Yield canonical actions of a game in fences, each with up to three faults."""
    rng = Random(f"actions {game}")
    actions = sorted({name for state in start_states(game) for name in GAMES[game].actions(state)})
    for _ in range(NUM_ANSWERS):
        text = rng.choice(actions)
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            text = rng.choice(ACTION_FAULTS)(text, rng)
        yield rng.choice(FRAMES).format(tag=rng.choice(TAGS), text=text)


def put(text: str, piece: str, rng: Random, *, over: int = 0) -> str:
    """Return the text with a piece put in somewhere, over so many of its characters."""
    place = rng.randrange(len(text) + 1)
    return text[:place] + piece + text[place + over :]


def other_digits(text: str, rng: Random) -> str:
    return "".join(rng.choice(DIGITS) if symbol.isdigit() else symbol for symbol in text)


ACTION_FAULTS: tuple[Callable[[str, Random], str], ...] = (
    lambda text, rng: rng.choice((text.upper, text.lower, text.swapcase, text.title))(),
    lambda text, rng: put(text, rng.choice(SPACES), rng),
    lambda text, rng: put(text, rng.choice(SPACES) * rng.choice((2, 30, 2_000)), rng, over=1),
    lambda text, rng: put(text, rng.choice(NOISE), rng),
    lambda text, rng: put(text, rng.choice(NOISE), rng, over=1),
    lambda text, rng: put(text, "", rng, over=rng.randrange(1, 4)),
    lambda text, rng: put(text, rng.choice(DIGITS) * rng.choice((1, 3, 40)), rng),
    lambda text, rng: (
        put(text, rng.choice("019") * rng.choice((1, 400, 5000)), rng)
        if rng.random() < 0.1
        else text + "0"
    ),
    lambda text, rng: put(text, "`" * rng.randrange(1, 7), rng),
    lambda text, rng: f"{rng.choice('([{<')}{text}{rng.choice(')]}>')}",
    lambda text, rng: text * 2,
    lambda text, rng: f"{text} {text}",
    other_digits,
)
FRAMES = (
    "```{tag}{text}```",
    "```{tag}{text}```",
    "I think.\n```{tag}{text}\n```\nDone.",
    "``````{text}``````",
    "```{tag}```{text}``````",
    "```Up``` no: ```{text}```",
    "```{text}``` or ```",
    "{text}",
)


@cache
def start_states(game: str) -> list[Any]:  # Any: each game has a state type of its own
    """Return some puzzles of every tier."""
    rng = np.random.default_rng(2)
    tiers = GAMES[game].tiers.values()
    return [GENERATORS[game](tier, rng) for tier in tiers for _ in range(5)]


def broken_boards(game: str) -> Iterator[str]:
    """Yield boards of a game with one to three faults, and texts that were never a board."""
    rng = Random(f"boards {game}")
    boards = [GAMES[game].encode(state) for state in start_states(game)]
    symbols = "".join(sorted(set("".join(boards))))
    for number in range(NUM_BOARDS):
        if number % 10 == 0:
            alphabet = rng.choice((symbols, symbols + NOISE, NOISE))
            yield "".join(rng.choices(alphabet, k=rng.randrange(80)))
            continue
        if number % 100 == 1:
            yield huge_board(symbols, rng)
            continue
        text = rng.choice(boards)
        for _ in range(rng.choice((1, 1, 2, 3))):
            text = rng.choice(BOARD_FAULTS)(text, rng, symbols)
        yield text


def huge_board(symbols: str, rng: Random) -> str:
    """Return a board with long rows, or very many, that may be a rectangle."""
    length = rng.choice((33, 101, 141, 1_000, _LONGEST))
    row = "".join(rng.choices(rng.choice((symbols, rng.choice(symbols))), k=length))
    return "\n".join([row[:: rng.choice((1, -1))]] * rng.choice((1, _LONGEST // length)))


BOARD_FAULTS: tuple[Callable[[str, Random, str], str], ...] = (
    lambda text, rng, symbols: put(text, rng.choice(symbols), rng, over=1),
    lambda text, rng, symbols: put(text, rng.choice(symbols), rng, over=1),
    lambda text, rng, symbols: put(text, rng.choice(symbols), rng),
    lambda text, rng, symbols: put(text, rng.choice(NOISE), rng, over=rng.randrange(2)),
    lambda text, rng, symbols: put(text, "", rng, over=rng.randrange(1, 9)),
    lambda text, rng, symbols: text[: rng.randrange(len(text) + 1)],
    lambda text, rng, symbols: put(text, rng.choice(("\n", "\n\n", "\r\n", "\u2028")), rng),
    lambda text, rng, symbols: text + rng.choice(("\n", "\n\n", " ", "\0")),
    lambda text, rng, symbols: text.replace("\n", rng.choice(("", " ", "\r\n"))),
    lambda text, rng, symbols: text.replace(rng.choice(symbols), rng.choice(symbols + NOISE)),
    lambda text, rng, symbols: "".join(rng.sample(text, len(text))),
    lambda text, rng, symbols: f"{text}\n{text}",
)


def broken_lines(game: str) -> Iterator[bytes]:
    """Yield lines for ``solve``: with broken boards, or with faults anywhere in the line."""
    rng = Random(f"lines {game}")
    lines = [request_line(game, state) for state in start_states(game)]
    values = ("null", "true", "-1", "1e9", "0.5", "[]", "{}", '""', '"1"', "[[0,0]]", "9" * 400)
    for number, board in enumerate(broken_boards(game)):
        if number % 2:
            rows = board.split("\n") if number % 4 == 1 else board
            yield json.dumps({"game": game, "board": rows}).encode()
            continue
        line = rng.choice(lines)
        for _ in range(rng.choice((1, 1, 2, 3))):
            piece = rng.choice((*values, *'",:[]{}019 ', "\\u0000", "\\ud800", "é", ""))
            line = put(line, piece, rng, over=rng.choice((0, 1, 1, 2, 5)))
        raw = line.encode(errors="surrogatepass")
        yield raw[: rng.randrange(len(raw))] if number % 16 == 0 else raw


def check_parsed(game: str, answers: Iterator[str] | list[str]) -> int:
    """Parse all answers and return how many held an action."""
    parse = GAMES[game].parse
    actions: set[str] = set()
    num_parsed = 0
    for answer in answers:
        found = timed(parse, answer)
        if isinstance(found, ParseFailure):
            assert found.feedback and "\n" not in found.feedback
            continue
        assert answer.count(FENCE) >= 2, answer
        num_parsed += 1
        actions.add(found)
    state = start_states(game)[0]
    for action in actions:
        assert timed(parse, f"{FENCE}{action}{FENCE}") == action
        timed(lambda action: GAMES[game].apply(state, action), action)
    return num_parsed


def check_loaded(game: str, load: Callable[[Any], Any], texts: Iterator[Any]) -> int:
    """Load all texts and return how many were refused; what is not must survive a round trip."""
    rules = GAMES[game]
    num_refused = 0
    for text in texts:
        try:
            state = timed(load, text)
        except PuzzleError as error:
            num_refused += 1
            message = str(error)
            assert message and "\n" not in message and len(message) < 500, message
        else:
            assert rules.decode(rules.encode(state)) == state
    return num_refused


@pytest.fixture(params=list(GAMES))
def game(request: pytest.FixtureRequest) -> str:
    return request.param


def test_parser_answers_random_bytes(game: str) -> None:
    answers = random_answers()
    assert len(answers) == NUM_ANSWERS
    check_parsed(game, answers)


def test_parser_answers_near_actions(game: str) -> None:
    num_parsed = check_parsed(game, near_actions(game))
    # Both sides of the border are walked: neither all nor hardly any hold an action.
    assert 0.1 < num_parsed / NUM_ANSWERS < 0.9


def test_decode_refuses_broken_boards_or_reads_them_whole(game: str) -> None:
    num_refused = check_loaded(game, GAMES[game].decode, broken_boards(game))
    assert 0.5 < num_refused / NUM_BOARDS < 1


def test_solve_refuses_broken_lines_or_reads_them_whole(game: str) -> None:
    def load(line: bytes) -> Any:
        # A fault may turn the name into that of another game, or leave a line as it was.
        found = parse_request(line)
        assert found.game == game
        return found.state

    num_refused = check_loaded(game, load, broken_lines(game))
    assert 0.5 < num_refused / NUM_BOARDS < 1
