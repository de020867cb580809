"""The appendix in numbers: puzzles as arrays, performance difference, endogenous reward, optima."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cast_ray.algorithms.advantages import Array, outcome_advantage
from cast_ray.games import get_game
from cast_ray.games.game import Effect
from tests.theory.approximations import (
    beta_ratio,
    cast_payoff,
    endogenous_gap,
    entropy_paths,
    normaliser_gap,
    small_signal,
)
from tests.theory.ascent import (
    ascend,
    closed_form,
    cross_entropy_regularised,
    entropy,
    kl_regularised,
    task_advantage,
)
from tests.theory.exact import corridor_rewards, identity_errors
from tests.theory.expectations import (
    expected_gradient,
    expected_return,
    gradient,
    softmax,
    visits,
)
from tests.theory.finite_game import (
    FiniteGame,
    all_episodes,
    probability,
    score,
    shifted_advantages,
    tabulate,
)
from tests.theory.objective import (
    cast_term,
    cumulative_advantage,
    log_teacher,
    moving_objective,
    outcome_gain,
    task_return,
)
from tests.theory.rooms import CORRIDOR, TWO_BOXES, open_room, room, some_logits

ALPHA, TAU = 0.1, 0.5
ROUNDING = 1e-12


def in_state(game: FiniteGame, text: str) -> dict[str, float]:
    """Return the shifted advantages of a drawn board."""
    place = game.states.index(get_game("sokoban").decode(text))
    return dict(zip(game.actions, shifted_advantages(game)[place].tolist(), strict=True))


def test_every_entry_of_the_table_is_a_move_of_the_game() -> None:
    game, rules = room(horizon=8), get_game("sokoban")
    open_states = np.flatnonzero(~game.has_ended)
    checked = 0
    for state, action in product(open_states.tolist(), range(4)):
        transition = rules.apply(game.states[state], game.actions[action])
        assert game.states[game.next_state[state, action]] == transition.state
        assert game.has_effect[state, action] == (transition.effect is Effect.CHANGED)
        checked += 1
    assert checked > 60


def test_shifted_advantages_of_a_drawn_board() -> None:
    board = "######\n#___##\n#PX_O#\n#____#\n######"
    assert in_state(room(), board) == {"Up": -1.0, "Down": -1.0, "Left": 0.0, "Right": 1.0}


def test_push_into_a_deadlock_costs_all_the_moves_that_were_left() -> None:
    board = "######\n#__P##\n#__XO#\n#____#\n######"  # N = 3: around the box to its left
    assert in_state(room(horizon=8), board)["Down"] == -3.0


def test_moves_in_a_dead_state_earn_nothing() -> None:
    board = "######\n#___##\n#_P_O#\n#_X__#\n######"
    game = room(horizon=8, deadlock_ends_episode=False)
    assert set(in_state(game, board).values()) == {0.0}


def test_start_that_is_decided_is_refused() -> None:
    with pytest.raises(ValueError, match="start"):
        room("P*")


def test_unknown_cost_is_refused() -> None:
    game = get_game("sokoban")
    with pytest.raises(ValueError, match="unknown"):
        tabulate(
            game, game.decode(CORRIDOR), lambda states: np.full(len(states), np.nan), horizon=3
        )


def test_visits_add_up_to_the_mean_length_of_episodes_not_to_the_horizon() -> None:
    game = room(horizon=5)
    policy = softmax(some_logits(game))
    lengths = sum(probability(each, policy) * len(each.actions) for each in all_episodes(game))
    assert visits(game, policy).per_state.sum() == pytest.approx(lengths, abs=ROUNDING)
    assert lengths < 4.9


def test_visits_add_up_to_the_horizon_where_no_episode_can_end_early() -> None:
    game = room(CORRIDOR, horizon=3)  # N = 3
    policy = softmax(some_logits(game))
    assert visits(game, policy).per_state.sum() == pytest.approx(3.0, abs=ROUNDING)


def test_teacher_gives_every_action_a_share_also_the_ineffective_ones() -> None:
    game = room()
    teacher = np.exp(log_teacher(shifted_advantages(game), TAU))
    np.testing.assert_allclose(teacher.sum(axis=-1), 1.0, atol=ROUNDING)
    assert (teacher[~game.has_effect] > 0.01).all()


@settings(derandomize=True, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 9))
def test_performance_difference_holds_for_any_policies_and_rewards(seed: int, horizon: int) -> None:
    game = open_room(seed, horizon=horizon)
    new, old = softmax(some_logits(game, seed)), softmax(some_logits(game, seed + 1))
    rewards = np.where(game.has_ended[:, None], 0.0, some_logits(game, seed + 2))
    difference = expected_return(game, new, rewards) - expected_return(game, old, rewards)
    cumulative = cumulative_advantage(game, new, old, rewards)
    assert cumulative == pytest.approx(difference, abs=1e-10)


def test_appendix_holds_to_rounding() -> None:
    game = room()
    errors = identity_errors(
        game, room(CORRIDOR, horizon=12), some_logits(game), alpha=ALPHA, tau=TAU
    )
    assert errors.performance_difference < ROUNDING
    assert errors.performance_difference_augmented < ROUNDING
    assert errors.endogenous_reward < ROUNDING
    assert errors.endogenous_gradient < ROUNDING
    assert errors.endogenous_immediate < ROUNDING
    assert errors.closed_form < ROUNDING


def test_endogenous_reward_is_minus_one_but_for_the_teachers_normaliser() -> None:
    game = room(CORRIDOR, horizon=12)
    hats, _ = corridor_rewards(game, TAU)
    normaliser = np.log(np.exp((shifted_advantages(game) - 1.0) / TAU).sum(axis=-1))
    here = ~game.has_ended
    np.testing.assert_allclose(
        hats[here], np.repeat(-1.0 - TAU * normaliser[here, None], 4, axis=1), atol=ROUNDING
    )
    assert (normaliser[here] > 0.05).all()  # so it is not -1


def test_as_a_turns_weight_the_endogenous_reward_teaches_nothing_and_the_base_signal_does() -> None:
    game = room(CORRIDOR, horizon=12)
    hats, tildes = corridor_rewards(game, TAU)
    policy = softmax(some_logits(game))
    turns = visits(game, policy).turns
    assert np.abs(expected_gradient(policy, turns, hats)).max() < ROUNDING
    assert np.abs(expected_gradient(policy, turns, tildes)).max() > 0.1


def test_both_rewards_give_one_gradient_only_where_every_episode_is_won() -> None:
    gaps = dict(endogenous_gap([room(CORRIDOR, horizon=h) for h in (8, 32, 256)], tau=TAU))
    assert gaps[8] > 0.5
    assert gaps[8] > gaps[32] > gaps[256]
    assert gaps[256] < 1e-3


@pytest.mark.parametrize("keeps_entropy", [True, False])
def test_payoff_that_ascent_adds_is_the_natural_gradient(keeps_entropy: bool) -> None:
    game = room()
    logits, advantage = some_logits(game), some_logits(game, 1)
    teacher, beta = log_teacher(shifted_advantages(game), TAU), 0.3
    value = kl_regularised if keeps_entropy else cross_entropy_regularised
    policy = softmax(logits)
    payoff = advantage + beta * (teacher - np.log(policy) * keeps_entropy)
    once = np.ones((1, len(game.states)))
    np.testing.assert_allclose(
        gradient(lambda x: value(softmax(x), teacher, advantage, beta).sum(), logits),
        expected_gradient(policy, once, payoff),  # Fisher matrix times payoff
        atol=ROUNDING,
    )


def frozen_optimum(game: FiniteGame, *, keeps_entropy: bool) -> tuple[Array, Array, Array]:
    """Return the policy reached from the uniform one, the closed form, and what actions are worth.

    Rows are the states that the uniform policy meets.
    """
    uniform = np.zeros(game.next_state.shape)
    advantage = task_advantage(game, softmax(uniform))
    shifted = shifted_advantages(game)
    teacher = log_teacher(shifted, TAU)
    beta = cast_term(game, uniform, shifted, alpha=ALPHA, transform="identity").beta(TAU)
    *_, last = ascend(
        uniform,
        lambda now: advantage + beta * (teacher - (np.log(now) if keeps_entropy else 0.0)),
        rate=0.5 / beta,
        num_steps=60,
    )
    met = visits(game, softmax(uniform)).per_state > 0
    worth = advantage + beta * teacher
    return softmax(last)[met], closed_form(teacher, advantage, beta)[met], worth[met]


def test_ascent_on_the_kl_regularised_problem_reaches_the_closed_form() -> None:
    reached, target, _ = frozen_optimum(room(), keeps_entropy=True)
    np.testing.assert_allclose(reached, target, atol=ROUNDING)
    assert (reached > 0).all()
    assert entropy(reached).mean() > 0.1


def test_without_the_entropy_term_only_the_best_actions_survive() -> None:
    reached, _, worth = frozen_optimum(room(), keeps_entropy=False)
    is_best = worth > worth.max(axis=-1, keepdims=True) - 1e-9
    assert reached[~is_best].max() < 1e-3
    is_single = is_best.sum(axis=-1) == 1
    assert entropy(reached[is_single]).max() < 0.01
    # Actions of exactly equal worth keep their shares: deterministic is said too much there.
    np.testing.assert_allclose(
        entropy(reached[~is_single]), np.log(is_best[~is_single].sum(axis=-1)), atol=0.01
    )


def test_cross_entropy_is_divergence_and_entropy() -> None:
    game = room()
    teacher, beta = log_teacher(shifted_advantages(game), TAU), 0.7
    policy = softmax(some_logits(game))
    advantage = task_advantage(game, policy)
    with_entropy = kl_regularised(policy, teacher, advantage, beta)
    without = cross_entropy_regularised(policy, teacher, advantage, beta)
    np.testing.assert_allclose(with_entropy - without, beta * entropy(policy), atol=ROUNDING)


def test_moving_objective_is_the_return_less_divergence_and_entropy() -> None:
    game, beta = room(), 0.7
    teacher, logits = log_teacher(shifted_advantages(game), TAU), some_logits(game)
    policy = softmax(logits)
    divergence = (policy * (np.log(policy) - teacher)).sum(axis=-1)
    lost = (visits(game, policy).per_state * (divergence + entropy(policy))).sum()
    whole = moving_objective(game, logits, beta * teacher)
    assert whole == pytest.approx(task_return(game, logits) - beta * lost, abs=1e-10)


def test_cast_itself_ends_deterministic_and_wins() -> None:
    game = room()
    shifted = shifted_advantages(game)
    *_, last = ascend(
        np.zeros_like(shifted),
        lambda now: cast_payoff(game, now, shifted, ALPHA),
        rate=5.0,
        num_steps=60,
    )
    on_its_way = visits(game, softmax(last)).per_state > 1e-9
    assert entropy(softmax(last))[on_its_way].max() < 1e-9
    assert task_return(game, last) == pytest.approx(1.0, abs=1e-9)


def test_two_equally_good_ways_stay_open_to_cast() -> None:
    paths = entropy_paths(room(TWO_BOXES, horizon=12), alpha=ALPHA, tau=TAU, num_steps=60)
    assert 0.05 < paths["cast"][-1][1] < 0.2


@pytest.mark.parametrize("group_size", [2, 3])
def test_gain_of_the_outcome_term_is_what_all_groups_give_one_by_one(group_size: int) -> None:
    game = room("#P_XO#", horizon=2)
    policy = softmax(some_logits(game))
    episodes = list(all_episodes(game))
    likely = np.array([probability(each, policy) for each in episodes])
    rewards = np.array([float(each.is_won) for each in episodes])
    scores = np.array([score(game, each, policy, np.ones(len(each.actions))) for each in episodes])
    total = np.zeros_like(policy)
    for group in product(range(len(episodes)), repeat=group_size):
        members = list(group)
        weights = outcome_advantage(rewards[members], std="population", delta=1e-6)
        total += likely[members].prod() * np.tensordot(weights, scores[members], 1) / group_size
    success = float(likely @ rewards)
    task = gradient(lambda moved: task_return(game, moved), np.log(policy))
    np.testing.assert_allclose(total, outcome_gain(group_size, success) * task, atol=1e-10)


def test_gain_of_the_outcome_term_depends_on_how_often_the_board_is_won() -> None:
    assert outcome_gain(8, 0.5) == pytest.approx(1.856, abs=1e-3)
    assert outcome_gain(8, 0.02) == pytest.approx(2.574, abs=1e-3)
    assert outcome_gain(8, 0.02) == pytest.approx(outcome_gain(8, 0.98))


def test_beta_rises_by_a_quarter_before_it_falls() -> None:
    ratio = dict(beta_ratio([0.0, -1.0, -2.0, -3.0, -4.0, -14.0]))
    assert ratio[0.0] == 1.0
    assert ratio[-1.0] == pytest.approx(np.sqrt(2) * np.arcsinh(1.0))
    assert ratio[-2.0] == pytest.approx(ratio[-1.0])
    assert ratio[-3.0] > 1.0 > ratio[-4.0] > ratio[-14.0]


def test_slopes_of_the_limit_are_two_and_one() -> None:
    curves = small_signal(room(), some_logits(room()), tau=TAU, num_halvings=10)
    assert curves.error_slope == pytest.approx(2.0, abs=0.02)
    assert curves.relative_slope == pytest.approx(1.0, abs=0.02)


def test_normaliser_matters_less_to_a_colder_teacher() -> None:
    gaps = dict(normaliser_gap(room(), some_logits(room()), temperatures=[2.0, 0.5, 0.125]))
    assert gaps[2.0] > 0.1
    assert gaps[2.0] > gaps[0.5] > gaps[0.125]
    assert gaps[0.125] < 0.001
