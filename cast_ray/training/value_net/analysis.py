"""Compares a value network with the exact solver, on boards that it did not learn from.

The states are those met on each board by random play, the network's own play and the solver's play;
each state counts once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cast_ray.config.load import load_value_net_config
from cast_ray.config.train import PuzzleConfig
from cast_ray.datasets.splits import make_boards, read_boards
from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.files import write_text
from cast_ray.games import find_tier, get_game
from cast_ray.games.game import Status
from cast_ray.games.puzzles import Puzzle, read_puzzles
from cast_ray.parquet import write_table
from cast_ray.seeds import derive_seed
from cast_ray.statistics import Success, success_rate
from cast_ray.training.value_net.directory import STAGES, ValueNetDirectory
from cast_ray.training.value_net.page import Headline, headlines, write_value_net_page
from cast_ray.training.value_net.quality import JudgedState, TeacherQuality, teacher_quality
from solver_actors.players import GREEDY, is_privileged
from solver_actors.registry import get_solver_entry, has_solver
from solver_actors.solver import Solver
from solver_actors.value_net.network import QNetwork, check_fits, load_q_network
from solver_actors.value_net.scale import ValueNetOracle, ValueScale
from solver_actors.value_net.solver import value_net_entry

_SEED = 1_000_003
"""Of generated boards; no run has it by default."""
LARGEST_Q, LOOKING_AHEAD = "by its largest Q", "looking one move ahead"
_RANDOM_GAMES = 2
"""Per board."""
Choose = Callable[[Any], str | None]
"""Returns the action in a state, None = none. Any: each game has its own state type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueNetAnalysis:
    """How good a teacher a network is, and how well it plays by itself."""

    quality: TeacherQuality
    play: dict[str, Success]
    """Boards solved within the tier's turns by each of its ways of playing (``_ways``)."""
    states: tuple[JudgedState, ...]

    def headlines(self, game: str) -> list[Headline]:
        """Return the figures in words."""
        return headlines(game, self.quality, self.play)


def analyse_value_net(
    network: QNetwork, puzzles: Sequence[Puzzle], *, tier: str, seed: int = 0
) -> ValueNetAnalysis:
    """Compare a network with exact costs.

    Args:
        network: of the puzzles' game.
        puzzles: that it did not learn from.
        tier: of the puzzles; its boards must have the size of the network's.
        seed: of random play and of the intervals.

    Raises:
        ConfigError: the game has no solver, or there is no such tier.
        ModelError: the network does not fit the tier, or a value is not finite.
    """
    game = network.shape.game
    if not has_solver(game):
        raise ConfigError(
            f"{game} has no exact solver to compare a value network with: look at the success of "
            "the policy that it teaches instead"
        )
    check_fits(network, game, tier)
    oracle = ValueNetOracle(network=network, scale=ValueScale(scale=1.0))
    entry, estimator = get_solver_entry(game), value_net_entry(oracle)
    budget = find_tier(game, tier).turn_budget
    states: list[JudgedState] = []
    solved: dict[str, list[float]] = {}
    for number, puzzle in enumerate(puzzles):
        start = get_game(game).decode(puzzle.board)
        exact, estimates = entry.build(start), estimator.build(start)
        rng = np.random.default_rng(derive_seed(seed, "analysis", number))
        met: dict[Any, None] = {}
        for way, choose in _ways(game, estimates).items():
            visited = list(_play(game, start, choose, budget=budget))
            solved.setdefault(way, []).append(
                float(get_game(game).status(visited[-1]) is Status.WON)
            )
            met |= dict.fromkeys(visited)
        others: list[Choose] = [partial(entry.next_action, exact)]
        others += [_at_random(game, rng)] * _RANDOM_GAMES
        for choose in others:
            met |= dict.fromkeys(_play(game, start, choose, budget=budget))
        states += _judged(game, list(met), exact, estimates, puzzle=number)
    names = [puzzle.puzzle_id for puzzle in puzzles]
    return ValueNetAnalysis(
        quality=teacher_quality(states, seed=seed),
        play={way: success_rate(names, wins, seed=seed) for way, wins in solved.items()},
        states=tuple(states),
    )


def puzzles_for(directory: Path, *, tier: str, file: Path | None, limit: int) -> list[Puzzle]:
    """Return boards that a network did not learn from.

    They are those of a file; else those that the network's run held out, if they are of this tier;
    else generated ones, none symmetric to a board of the run. If the network is not in a run of
    ``cast-ray value-net train``, the boards that it learned from are unknown, and the generated
    ones have a seed that no run has by default.

    Args:
        directory: of the network, in the directory of its run or elsewhere.
        tier: of the boards; empty = that of the run.
        file: Parquet file of puzzles.
        limit: most boards.

    Raises:
        ConfigError: the network is not in a run and no tier is given.
        PuzzleError: the file is broken, or holds boards of another game or tier, or boards that the
            network learned from.
        ModelError: there is no network.
    """
    game = load_q_network(directory).shape.game
    run = ValueNetDirectory(directory.parent)
    is_run = run.has(run.network(STAGES[0]))  # a CAST run also has a copy of its network
    trained = load_value_net_config(run.config, [], is_stored=True) if is_run else None
    tier = tier or (trained.tier if trained else "")
    if not tier:
        raise ConfigError(
            f"{directory} is not in a run that records which boards it learned from: give --tier, "
            f"one of {', '.join(get_game(game).tiers)}"
        )
    boards = read_boards(run.puzzles) if trained else None
    learned = {one.puzzle_id for one in boards.train} if boards else set()
    if file is not None:
        puzzles = read_puzzles(file)
        wrong = [one for one in puzzles if (one.game, one.tier) != (game, tier)]
        if wrong or not puzzles:
            found = f"{wrong[0].game}:{wrong[0].tier}" if wrong else "no puzzle at all"
            raise PuzzleError(f"{file} must hold puzzles of {game}:{tier}, got {found}")
        if known := sum(one.puzzle_id in learned for one in puzzles):
            raise PuzzleError(
                f"{known} of the {len(puzzles)} boards in {file} are ones that the network learned "
                "from: remove them"
            )
        return puzzles[:limit]
    if boards and trained and trained.tier == tier:
        return boards.held_out[:limit]
    sizes = PuzzleConfig(num_train=1, num_validation=1, num_held_out=limit, seed=_SEED)
    return make_boards(game, tier, sizes, exclude=learned).held_out


def write_analysis(
    analysis: ValueNetAnalysis, out: Path, *, game: str, tier: str, num_boards: int
) -> None:
    """Write ``analysis.json``, ``analysis.parquet`` (a row per state) and ``analysis.html``.

    Raises:
        EnvironmentSetupError: they cannot be written.
    """
    figures = {"game": game, "tier": tier, "boards": num_boards, **asdict(analysis.quality)}
    figures["solved"] = {way: asdict(rate) for way, rate in analysis.play.items()}
    write_text(out / "analysis.json", json.dumps(figures, indent=1) + "\n")
    states = pa.Table.from_pylist([asdict(one) for one in analysis.states])
    write_table(out / "analysis.parquet", states)
    write_value_net_page(
        out / "analysis.html", analysis, game=game, tier=tier, num_boards=num_boards
    )


def _play(game: str, start: Any, choose: Choose, *, budget: int) -> Iterator[Any]:
    """Yield the states of one game, including the first."""
    rules, state = get_game(game), start
    yield state
    for _ in range(budget):
        action = choose(state) if rules.status(state) is Status.PLAYING else None
        if action is None:
            return
        state = rules.apply(state, action).state
        yield state


def _ways(game: str, estimates: Solver[Any]) -> dict[str, Choose]:
    """Return how the network plays by itself: by its largest Q, or by the largest V after a move.

    The second is left out where it would reveal what is hidden from the player.
    """

    def look_ahead(state: Any) -> str | None:
        costs = estimates.action_costs(state)
        return min(costs, key=costs.__getitem__) if costs else None

    ways: dict[str, Choose] = {LARGEST_Q: estimates.best_action}
    return ways if is_privileged(GREEDY, game) else ways | {LOOKING_AHEAD: look_ahead}


def _at_random(game: str, rng: np.random.Generator) -> Choose:
    def choose(state: Any) -> str | None:
        actions = get_game(game).scored_actions(state)
        return actions[rng.integers(len(actions))] if actions else None

    return choose


def _judged(
    game: str, states: Sequence[Any], exact: Solver[Any], estimates: Solver[Any], *, puzzle: int
) -> Iterator[JudgedState]:
    """Yield the undecided states of one layout, with exact and estimated costs."""
    rules = get_game(game)
    going = [state for state in states if rules.status(state) is Status.PLAYING]
    costs, values = exact.cost_to_go(going), -estimates.cost_to_go(going)
    for state, cost, value in zip(going, costs.tolist(), values.tolist(), strict=True):
        after, estimated = exact.action_costs(state), estimates.action_costs(state)
        yield JudgedState(
            puzzle=puzzle,
            board=rules.encode(state),
            cost=cost,
            value=value,
            actions=tuple(after),
            costs_after=tuple(after.values()),
            values_after=tuple(-estimated[action] for action in after),
        )
