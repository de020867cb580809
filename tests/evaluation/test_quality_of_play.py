import math

import pytest

from cast_ray.evaluation.scores import play_quality
from cast_ray.games.game import Effect
from tests.support.made_attempts import made_attempt

MOVE, WALL, UNREADABLE = Effect.CHANGED, Effect.INEFFECTIVE, Effect.INVALID
INF, NAN = math.inf, math.nan


def test_regret_and_optimal_moves_of_attempts_worked_by_hand() -> None:
    # Optimal, wasted one there and one back (regret 2), a wall (no regret, not optimal), optimal.
    detour = made_attempt(effects=(MOVE, MOVE, WALL, MOVE), costs=(5.0, 4.0, 5.0, 5.0, 4.0))
    straight = made_attempt(effects=(MOVE, MOVE), costs=(2.0, 1.0, 0.0), is_success=True)
    quality = play_quality([detour, straight])
    assert quality.mean_regret == (0 + 2 + 0 + 0 + 0) / 5
    assert quality.optimal_share == 4 / 6


def test_dead_position_has_no_regret_and_nothing_optimal_left() -> None:
    quality = play_quality(
        [
            made_attempt(
                effects=(MOVE, MOVE, MOVE), costs=(3.0, 2.0, INF, INF), end_reason="deadlock"
            )
        ]
    )
    assert quality.mean_regret == 0
    assert quality.optimal_share == 1 / 2  # the fatal move counts, the one after it does not


def test_fatal_moves_are_counted_from_1_over_attempts_that_are_known() -> None:
    second = made_attempt(effects=(MOVE, MOVE), costs=(3.0, 2.0, INF))
    first = made_attempt(effects=(MOVE, MOVE), costs=(3.0, INF, INF))
    fine = made_attempt(effects=(MOVE,), costs=(3.0, 2.0))
    unknown = made_attempt(effects=(MOVE, MOVE), costs=(3.0, NAN, INF))
    known_before_it_is_not = made_attempt(effects=(MOVE, MOVE), costs=(3.0, INF, NAN))
    quality = play_quality([second, first, fine, unknown, known_before_it_is_not])
    assert quality.fatal_share == 3 / 4
    assert quality.median_fatal_turn == 1.0


def test_median_of_two_fatal_turns_lies_between_them() -> None:
    early = made_attempt(effects=(MOVE,), costs=(3.0, INF))
    late = made_attempt(effects=(MOVE,) * 4, costs=(3.0, 2.0, 3.0, 2.0, INF))
    assert play_quality([early, late]).median_fatal_turn == 2.5


def test_without_fatal_moves_the_share_is_zero_and_the_turn_undefined() -> None:
    quality = play_quality([made_attempt(costs=(3.0, 2.0, 1.0))])
    assert (quality.fatal_share, quality.median_fatal_turn) == (0.0, None)


def test_excess_length_counts_all_turns_on_solved_boards_alone() -> None:
    solved = made_attempt(
        effects=(MOVE, UNREADABLE, MOVE, MOVE),
        costs=(1.0, 2.0, 2.0, 1.0, 0.0),
        is_success=True,
    )
    optimal = made_attempt(effects=(MOVE,), costs=(1.0, 0.0), is_success=True)
    failed = made_attempt(effects=(MOVE,) * 9, costs=(1.0,) * 10)
    assert play_quality([solved, optimal, failed]).excess_turns == (3 + 0) / 2


def test_risk_of_minesweeper_is_a_mean_over_reveals() -> None:
    attempt = made_attempt(
        game="minesweeper",
        effects=(MOVE, MOVE, MOVE),
        excess_risks=(0.25, None, 0.0),
        safe_reveals=(False, None, True),
        costs=(4.0, 3.0, INF, INF),
    )
    careful = made_attempt(
        game="minesweeper", effects=(MOVE,), excess_risks=(0.0,), safe_reveals=(True,)
    )
    quality = play_quality([attempt, careful])
    assert quality.excess_risk == pytest.approx(0.25 / 3)
    assert quality.safe_share == pytest.approx(2 / 3)


def test_minesweeper_has_no_regret_nor_fatal_moves_nor_length() -> None:
    attempt = made_attempt(game="minesweeper", costs=(2.0, 1.0, 0.0), is_success=True)
    lost = made_attempt(game="minesweeper", costs=(2.0, 1.0, INF), end_reason="lost")
    quality = play_quality([attempt, lost])
    assert (quality.mean_regret, quality.optimal_share, quality.excess_turns) == (None, None, None)
    assert (quality.fatal_share, quality.median_fatal_turn) == (None, None)


def test_benchmark_without_solver_has_costs_alone() -> None:
    quality = play_quality([made_attempt(game="alfworld", is_success=True)])
    assert (quality.mean_regret, quality.optimal_share, quality.fatal_share) == (None, None, None)
    assert (quality.excess_turns, quality.excess_risk, quality.safe_share) == (None, None, None)
    assert quality.turns == 2


def test_tokens_seconds_and_retries_add_up() -> None:
    short = made_attempt(
        effects=(MOVE,), answer_tokens=(30,), prompt_tokens=100, seconds=2.0, num_retries=1
    )
    long = made_attempt(
        effects=(MOVE,) * 3, answer_tokens=(10, 20, 0), prompt_tokens=400, seconds=4.0,
        num_retries=2,
    )  # fmt: skip
    quality = play_quality([short, long])
    assert (quality.turns, quality.answer_tokens, quality.answer_tokens_per_turn) == (2, 30, 15)
    assert (quality.prompt_tokens, quality.seconds, quality.num_retries) == (250, 3, 3)


def test_one_uncounted_answer_leaves_tokens_unknown() -> None:
    counted = made_attempt(answer_tokens=(10, 10), prompt_tokens=5, price_usd=0.5)
    uncounted = made_attempt(answer_tokens=(10, None), prompt_tokens=None, price_usd=None)
    quality = play_quality([counted, uncounted])
    assert (quality.answer_tokens, quality.answer_tokens_per_turn) == (None, None)
    assert (quality.prompt_tokens, quality.price_usd) == (None, None)


def test_price_is_that_of_all_attempts() -> None:
    assert play_quality([made_attempt(price_usd=0.25), made_attempt(price_usd=0.0)]).price_usd == (
        0.25
    )
