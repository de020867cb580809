"""What the texts of a game must satisfy: boards, observations, and answers of any kind."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cast_ray.errors import PuzzleError
from cast_ray.games.game import ParseFailure
from cast_ray.games.testing.game_checks import demand_contract
from cast_ray.games.testing.samples import Samples, State, demand, shown
from cast_ray.games.text import FENCE

_NUM_RANDOM = 200
"""Random texts of each kind."""
_NUM_BENT = 12
"""Bent variants of one board or action."""
_MOST_BYTES = 60
# Digits that str.isdigit knows and int refuses, digits beyond ASCII, more of them than int reads,
# half of a surrogate pair, line breaks of all kinds.
_TRAPS = ("²", "١", "９", "9" * 5000, "-1", "\ud800", "\0", "\r\n", "\u2028", "\t", FENCE, "")


def check_round_trip(samples: Samples) -> None:
    """``decode`` reads back what ``encode`` writes, also with one line break at the end."""
    game = samples.game
    for state in samples.states:
        text = game.encode(state)
        for given in (text, text + "\n"):
            again = _decoded(samples, given)
            demand(again == state, f"decode({shown(given)}) is not the state that encode wrote")
        demand(
            game.encode(again) == text,
            f"a decoded board is written differently: {shown(text)}, then "
            f"{shown(game.encode(again))}",
        )


def check_junk_boards(samples: Samples) -> None:
    """``decode`` refuses what is no board with a one-line PuzzleError, and with nothing else."""
    rng = samples.rng("junk boards")
    boards = [samples.game.encode(episode.states[-1]) for episode in samples.episodes]
    bent = [text for board in boards for text in _bent(board, rng)]
    for text in (*random_texts(rng), *bent, *(FENCE + board for board in boards)):
        state = _decoded(samples, text)
        if state is not None:
            again = samples.game.encode(state)
            demand(
                _decoded(samples, again) == state,
                f"decode takes {shown(text)}, and encode writes it as {shown(again)} (not it)",
            )


def check_observation(samples: Samples) -> None:
    """The observation says something, and the same for equal states."""
    game = samples.game
    for state in samples.open_states:
        text, observation = game.encode(state), game.observe(state)
        demand(observation.strip(), f"observe says nothing of {shown(text)}")
        demand(
            observation == game.observe(game.decode(text)) == game.observe(state),
            f"observe says different things of equal states of {shown(text)}",
        )


def check_parser(samples: Samples) -> None:
    """``parse`` never raises, and ``apply`` takes whatever it returns, in any open state."""
    rng = samples.rng("answers")
    actions = sorted({action for state in samples.open_states for action in _named(samples, state)})
    some = [actions[place] for place in rng.permutation(len(actions))[:_NUM_BENT]]
    bent = [text for action in some for text in (*_bent(action, rng), action.swapcase())]
    states = [next(filter(samples.is_open, episode.states)) for episode in samples.episodes]
    for text in (*random_texts(rng), *bent):
        for answer in (text, f"{FENCE}{text}{FENCE}", f"Thus:\n{FENCE}action\n{text}\n{FENCE}"):
            found = _parsed(samples, answer)
            if isinstance(found, ParseFailure):
                demand(
                    found.feedback.strip() and "\n" not in found.feedback,
                    f"parse({shown(answer)}) fails with the feedback {found.feedback!r}: say in "
                    "one line what was wrong",
                )
                continue
            demand(isinstance(found, str), f"parse({shown(answer)}) is {found!r}, no text")
            again = _parsed(samples, f"{FENCE}{found}{FENCE}")
            demand(
                again == found,
                f"parse({shown(answer)}) is {found!r}, which parses to {again!r}: return the "
                "canonical spelling",
            )
            for state in states:
                _demand_applicable(samples, state, found)


def check_canonical_actions(samples: Samples) -> None:
    """Every action parses to itself in the last pair of fences, and to nothing without fences."""
    actions = {action for state in samples.open_states for action in _named(samples, state)}
    for action in sorted(actions):
        fenced = f"{FENCE}{action}{FENCE}"
        for answer in (
            fenced, f"I think so.\n{FENCE}{action}\n{FENCE}", f"{FENCE}?{FENCE} no: {fenced}",
            f"{fenced} and {FENCE}?", f"{FENCE}action\n{action}{FENCE}",
        ):  # fmt: skip
            found = _parsed(samples, answer)
            demand(found == action, f"parse({shown(answer)}) is {found!r} instead of {action!r}")
        for answer in (action, f"{fenced}{FENCE} {FENCE}"):
            found = _parsed(samples, answer)
            demand(
                isinstance(found, ParseFailure),
                f"parse({shown(answer)}) is {found!r}, though its last pair of fences is empty or "
                "missing",
            )


def _named(samples: Samples, state: State) -> tuple[str, ...]:
    return samples.game.actions(state) + samples.game.scored_actions(state)


def _decoded(samples: Samples, text: str) -> State:
    """Return the state, or None where the text was refused as it should be."""
    try:
        return samples.game.decode(text)
    except PuzzleError as error:
        message = str(error)
        demand(
            message and "\n" not in message,
            f"decode({shown(text)}) is refused with {message!r}: say in one line what is wrong",
        )
        return None
    except Exception as error:  # whatever else it raises is what this looks for
        raise AssertionError(
            f"decode({shown(text)}) raised {type(error).__name__}: {error}; refuse what is no "
            "board with PuzzleError"
        ) from error


def _parsed(samples: Samples, answer: str) -> str | ParseFailure:
    try:
        return samples.game.parse(answer)
    except Exception as error:  # whatever it raises is what this looks for
        raise AssertionError(
            f"parse({shown(answer)}) raised {type(error).__name__}: {error}; return a ParseFailure"
        ) from error


def _demand_applicable(samples: Samples, state: State, action: str) -> None:
    try:
        transition = samples.game.apply(state, action)
    except Exception as error:  # whatever it raises is what this looks for
        raise AssertionError(
            f"parse lets {action!r} through, and apply raised {type(error).__name__} on "
            f"{shown(samples.game.encode(state))}: {error}; return an illegal Transition"
        ) from error
    demand_contract(samples, state, action, transition)


def random_texts(rng: np.random.Generator) -> Iterator[str]:
    """Yield bytes read as text, then the traps."""
    for _ in range(_NUM_RANDOM):
        yield rng.bytes(int(rng.integers(_MOST_BYTES))).decode("latin-1")
        yield rng.bytes(int(rng.integers(_MOST_BYTES))).decode("utf-8", errors="surrogateescape")
    yield from _TRAPS


def _bent(text: str, rng: np.random.Generator) -> Iterator[str]:
    """Yield variants of a text with something left out, doubled, exchanged or put in."""
    for trap in _TRAPS:
        place = int(rng.integers(len(text) + 1))
        yield text[:place] + trap + text[place:]
        yield text[:place] + trap + text[place + 1 :]
    for _ in range(_NUM_BENT):
        start, end = sorted(rng.integers(len(text) + 1, size=2).tolist())
        yield text[:start] + text[end:]
        yield text[:end] + text[start:]
        yield text[start:end] + text[:start] + text[end:]


TEXT_CHECKS = {
    "round_trip": check_round_trip,
    "junk_boards": check_junk_boards,
    "observation": check_observation,
    "parser": check_parser,
    "canonical_actions": check_canonical_actions,
}
