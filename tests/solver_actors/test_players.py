"""Built-in players, and what a scorer says about their play."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from cast_ray.config.load import load_config
from cast_ray.envs.registry import make_environment
from cast_ray.errors import ConfigError
from cast_ray.evaluation.attempts import Attempt, attempts_of, to_attempt_table
from cast_ray.evaluation.tasks import GameTier, evaluation_puzzles
from cast_ray.evaluation.with_players import play_with_player
from cast_ray.games import get_game
from cast_ray.games.puzzles import Puzzle
from cast_ray.games.turn_quality import first_fatal_turn, optimal_turns, turn_regrets
from solver_actors.oracle import Oracle
from solver_actors.players import Player
from solver_actors.scoring import Scorer

CONFIG = load_config(None, [])


def puzzles_of(which: GameTier, count: int) -> list[Puzzle]:
    return evaluation_puzzles(which, CONFIG, limit=count, seen=set())


def play(
    player: str, tier: str, *, count: int = 200, attempts: int = 1, seed: int = 0
) -> tuple[list[Puzzle], list[Attempt]]:
    which = GameTier.parse(tier)
    puzzles = puzzles_of(which, count)
    return puzzles, play_with_player(
        player,
        puzzles,
        label=player,
        turn_budget=which.turn_budget,
        attempts=attempts,
        seed=seed,
        deadlock_ends_episode=True,
        on_puzzle=lambda done, total: None,
    )


@pytest.mark.parametrize(
    "tier", ["sokoban:id", "sokoban:unseen", "rush_hour:id", "rush_hour:unseen"]
)
@pytest.mark.parametrize("player", ["solver", "greedy"])
def test_solver_solves_all_200_puzzles_without_a_wasted_move(tier: str, player: str) -> None:
    puzzles, attempts = play(player, tier)
    assert len({puzzle.puzzle_id for puzzle in puzzles}) == 200
    assert all(attempt.is_success and attempt.reward == 1 for attempt in attempts)
    for puzzle, attempt in zip(puzzles, attempts, strict=True):
        assert len(attempt.actions) == puzzle.cost_to_go
        regrets = turn_regrets(attempt.costs, attempt.effects, game=attempt.game)
        assert regrets == [0] * len(attempt.actions)
        assert all(optimal_turns(attempt.costs, game=attempt.game))


@pytest.mark.parametrize("tier", ["minesweeper:id", "minesweeper:unseen"])
def test_solver_of_minesweeper_wins_exactly_the_boards_of_finite_cost(tier: str) -> None:
    puzzles, attempts = play("solver", tier)
    assert [attempt.is_success for attempt in attempts] == [
        math.isfinite(puzzle.cost) for puzzle in puzzles
    ]
    assert 0 < sum(attempt.is_success for attempt in attempts) < 200
    risks = [risk for attempt in attempts for risk in attempt.excess_risks]
    # By its rule it takes a provably safe cell, or else one of smallest probability.
    assert all(risk == 0 for risk in risks)
    safe = [is_safe for attempt in attempts for is_safe in attempt.safe_reveals]
    assert None not in safe
    lost = [attempt for attempt in attempts if not attempt.is_success]
    assert all(attempt.safe_reveals[-1] is False for attempt in lost)


def test_greedy_sees_the_mines_of_minesweeper_and_the_solver_does_not() -> None:
    _, peeking = play("greedy", "minesweeper:unseen", count=60)
    _, honest = play("solver", "minesweeper:unseen", count=60)
    assert sum(one.is_success for one in peeking) > sum(one.is_success for one in honest)


def test_soft_solver_draws_by_the_teachers_probabilities() -> None:
    board = "######\n#P_X_O\n#____#\n######"
    game = get_game("sokoban")
    puzzle = Puzzle(
        game="sokoban",
        tier="mini",
        puzzle_id="0" * 16,
        board=game.encode(game.decode(board)),
        cost_to_go=3,
        cost_status="exact",
        seed=0,
    )
    environment = make_environment(puzzle, turn_budget=5)
    environment.start()
    player = Player("soft-solver:1.5", Oracle(max_bytes=2**20))
    num_draws = 4000
    drawn = Counter(player.action("sokoban", environment, seed=i) for i in range(num_draws))
    # Right leads a move nearer (A~ = 1), Down one away (A~ = -1); Up and Left are walls.
    weights = {"Right": math.exp(1 / 1.5), "Down": math.exp(-1 / 1.5)}
    assert set(drawn) == set(weights)
    expected = weights["Right"] / sum(weights.values())
    spread = math.sqrt(expected * (1 - expected) / num_draws)
    assert abs(drawn["Right"] / num_draws - expected) < 4 * spread


def test_a_cold_soft_solver_is_the_solver() -> None:
    _, soft = play("soft-solver:0.01", "rush_hour:mini", count=40)
    assert all(len(attempt.actions) == attempt.costs[0] for attempt in soft)


@pytest.mark.parametrize("tier", ["sokoban:mini", "minesweeper:mini", "rush_hour:mini"])
def test_random_player_takes_legal_actions_and_follows_its_seed(tier: str) -> None:
    _, first = play("random", tier, count=15, attempts=2)
    _, again = play("random", tier, count=15, attempts=2)
    _, other = play("random", tier, count=15, attempts=2, seed=1)
    assert [one.actions for one in first] == [one.actions for one in again]
    assert [one.actions for one in first] != [one.actions for one in other]
    assert first[0].actions != first[1].actions  # attempts differ
    assert {effect for one in first for effect in one.effects} == {"changed"}


def test_a_deadlock_ends_an_attempt_at_its_first_fatal_turn() -> None:
    _, attempts = play("random", "sokoban:unseen", count=40)
    dead = [attempt for attempt in attempts if attempt.end_reason == "deadlock"]
    assert dead
    for attempt in dead:
        assert first_fatal_turn(attempt.costs) == len(attempt.actions) - 1
        assert not attempt.is_success and attempt.reward == 0


def test_attempts_come_back_from_their_table_as_they_were() -> None:
    _, attempts = play("random", "minesweeper:mini", count=10)
    _, more = play("random", "sokoban:mini", count=10)
    assert attempts_of(to_attempt_table(attempts + more)) == attempts + more


def test_judge_tells_risk_from_what_was_open_alone() -> None:
    """Against every layout that agrees with what is open, counted one by one."""
    from itertools import combinations

    game = get_game("minesweeper")
    _, attempts = play("random", "minesweeper:mini", count=6)
    checked = 0
    scorer = Scorer(Oracle(max_bytes=2**20))
    for attempt in attempts:
        state = game.decode(attempt.states[0])
        rows, cols = state.layout.rows, state.layout.cols
        cells = [(row, col) for row in range(rows) for col in range(cols)]
        shown = game.observe(state).splitlines()[-rows:]
        grid = {cell: shown[cell[0]].split()[1 + cell[1]] for cell in cells}
        hidden = [cell for cell in cells if grid[cell] in ".F"]
        near = {
            cell: [(r, c) for r, c in cells if max(abs(r - cell[0]), abs(c - cell[1])) == 1]
            for cell in cells
        }
        num_mines = bin(state.layout.mines).count("1")
        agreeing = [
            set(mines)
            for mines in combinations(hidden, num_mines)
            if all(
                sum(other in mines for other in near[cell]) == int(grid[cell])
                for cell in cells
                if grid[cell] not in ".F"
            )
        ]
        chance = {cell: sum(cell in mines for mines in agreeing) / len(agreeing) for cell in hidden}
        for cell in hidden:
            action = f"reveal {cell[0]} {cell[1]}"
            risks = scorer.risks("minesweeper", [attempt.states[0]] * 2, [action], ["changed"])
            assert risks.excess[0] == pytest.approx(chance[cell] - min(chance.values()))
            assert risks.safe[0] == (chance[cell] == 0)
            checked += 1
    assert checked > 50


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("soft-solver", "temperature.*0"),
        ("soft-solver:0", "temperature.*0"),
        ("soft-solver:hot", "temperature.*0"),
        ("solver:3", "solver:3"),
        ("perfect", "perfect"),
    ],
)
def test_unknown_player_is_refused_in_one_sentence(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as error:
        Player(name, Oracle(max_bytes=1))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("benchmark", ["alfworld", "webshop"])
def test_benchmarks_have_no_solver_to_follow(benchmark: str) -> None:
    Player("random", Oracle(max_bytes=1)).check_plays(benchmark)
    with pytest.raises(ConfigError, match=f"{benchmark} has no solver"):
        Player("greedy", Oracle(max_bytes=1)).check_plays(benchmark)
