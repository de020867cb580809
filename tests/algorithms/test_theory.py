"""The theorem, in numbers: CAST's expected gradient against the gradient of its objective.

The left side is the product's credit functions on exact expectations. The right side is written
here a second time, in torch, from the paper's symbols, and differentiated by autograd. Both are
float64 sums of at most a few thousand terms of size 1: they agree to 1e-12, or they do not agree.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cast_ray.algorithms.advantages import Array, rms_normalised
from tests.theory.exact import theorem_errors
from tests.theory.expectations import gradient, root_mean_square, softmax, visits
from tests.theory.finite_game import (
    FiniteGame,
    all_episodes,
    gradient_over_episodes,
    probability,
    shifted_advantages,
    shifted_advantages_of,
)
from tests.theory.objective import (
    CastTerm,
    cast_gradient,
    cast_term,
    log_teacher,
    moving_objective,
)
from tests.theory.rooms import TWO_BOXES, open_room, room, some_logits

ALPHA, TAU = 0.1, 0.5
ROUNDING = 1e-12
SURELY_NOT = 1e-3  # the largest entries of these gradients are about 0.1


def played(game: FiniteGame, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``[S]`` expected visits and the chance to win, turn by turn."""
    policy = torch.softmax(logits, dim=-1)
    after = torch.tensor(game.next_state).flatten()
    goes_on = torch.tensor(~game.has_ended)
    here = torch.zeros(len(game.states), dtype=torch.float64)
    here[0] = 1.0
    visited, won = torch.zeros_like(here), torch.zeros((), dtype=torch.float64)
    for _ in range(game.horizon):
        visited = visited + here
        moved = (here[:, None] * policy).flatten()
        here = torch.zeros_like(here).index_add(0, after, moved)
        won = won + here[torch.tensor(game.is_won)].sum()
        here = here * goes_on
    return visited, won


def objective_gradient(game: FiniteGame, logits: Array, weights: Array) -> Array:
    """Return the gradient of chance to win + sum_s d(s) E_pi[weights(s, .)], d held still."""
    free = torch.tensor(logits, requires_grad=True)
    visited, won = played(game, free)
    preferred = (torch.softmax(free, dim=-1) * torch.tensor(weights)).sum(dim=-1)
    (won + (visited.detach() * preferred).sum()).backward()
    assert free.grad is not None
    return free.grad.numpy()


def log_solver(game: FiniteGame, tau: float = TAU) -> Array:
    """Return ``[S, A]`` log pi_S, from the costs and the paper's words alone."""
    before, after = game.cost_to_go[:, None], game.cost_to_go[game.next_state]
    drop = np.zeros(after.shape)
    alive = np.isfinite(before) & np.isfinite(after)
    drop[alive] = (np.broadcast_to(before, after.shape) - np.where(alive, after, 0))[alive]
    fallen = np.isfinite(before) & np.isinf(after)
    drop[fallen] = -np.broadcast_to(before, after.shape)[fallen]
    return torch.log_softmax(torch.tensor(drop) / tau, dim=-1).numpy()


def scale_by_hand(game: FiniteGame, logits: Array, signal: Array) -> float:
    visited = played(game, torch.tensor(logits))[0].numpy()
    share = visited[:, None] * softmax(logits)
    return float(np.sqrt((share * signal**2).sum() / share.sum())) + 1e-8


def identity_gap(game: FiniteGame, logits: Array) -> float:
    """Return how far the two sides of the theorem are apart, identity transform."""
    shifted = shifted_advantages(game)
    term = cast_term(game, logits, shifted, alpha=ALPHA, transform="identity")
    beta = ALPHA * TAU / scale_by_hand(game, logits, shifted)
    theirs = objective_gradient(game, logits, beta * log_solver(game))
    return float(np.abs(cast_gradient(game, logits, term) - theirs).max())


def test_identity_transform_climbs_return_minus_beta_cross_entropy() -> None:
    game = room()
    assert np.isinf(game.cost_to_go).any()  # deadlocks can be reached
    assert (~game.has_effect & ~game.has_ended[:, None]).any()  # and walls be run into
    assert identity_gap(game, some_logits(game)) < ROUNDING


def test_it_does_so_where_play_goes_on_in_dead_states() -> None:
    game = room(deadlock_ends_episode=False)
    logits = some_logits(game)
    dead = np.isinf(game.cost_to_go)
    assert visits(game, softmax(logits)).per_state[dead].sum() > 0.1
    assert identity_gap(game, logits) < ROUNDING


def test_it_does_so_in_a_room_of_two_boxes_over_30_turns() -> None:
    game = room(TWO_BOXES, horizon=30)
    assert len(game.states) > 300
    assert identity_gap(game, some_logits(game)) < ROUNDING


@settings(derandomize=True, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 8))
def test_it_does_so_in_any_room(seed: int, horizon: int) -> None:
    game = open_room(seed, horizon=horizon)
    assert identity_gap(game, some_logits(game, seed)) < ROUNDING


@pytest.mark.parametrize("transform", ["identity", "asinh"])
@pytest.mark.parametrize("ends", [True, False])
def test_sum_over_all_episodes_one_by_one_gives_the_same_gradient(
    transform: str, ends: bool
) -> None:
    game = room(horizon=5, deadlock_ends_episode=ends)
    logits = some_logits(game)
    term = cast_term(game, logits, shifted_advantages(game), alpha=ALPHA, transform=transform)
    literal = gradient_over_episodes(game, softmax(logits), alpha=ALPHA, transform=transform)
    np.testing.assert_allclose(literal, cast_gradient(game, logits, term), atol=ROUNDING)


def test_episodes_are_all_there_and_each_comes_once() -> None:
    game = room(horizon=4)
    episodes = list(all_episodes(game))
    assert len(set(episodes)) == len(episodes)
    policy = softmax(some_logits(game))
    assert sum(probability(each, policy) for each in episodes) == pytest.approx(1.0, abs=1e-12)


def test_rms_under_the_visits_is_that_of_the_batch_that_holds_every_episode() -> None:
    # Under the uniform policy an episode of T turns has weight 4**(H - T): a batch of that many
    # copies of each is the expectation, and the product's own normalisation can be asked.
    game = room(horizon=4)
    batch = np.concatenate(
        [
            np.tile(shifted_advantages_of(game, each), 4 ** (4 - len(each.actions)))
            for each in all_episodes(game)
        ]
    )
    policy = softmax(np.zeros(game.next_state.shape))
    rms = root_mean_square(policy, visits(game, policy).per_state, shifted_advantages(game))
    np.testing.assert_allclose(
        rms_normalised(batch, epsilon=1e-8), batch / (rms + 1e-8), atol=ROUNDING
    )


def test_asinh_climbs_with_the_step_dependent_beta_on_a_over_tau() -> None:
    game = room()
    logits = some_logits(game)
    shifted = shifted_advantages(game)
    term = cast_term(game, logits, shifted, alpha=ALPHA, transform="asinh")
    advantage = shifted - 1.0
    beta = ALPHA * TAU / scale_by_hand(game, logits, np.arcsinh(shifted))
    safe = np.where(advantage == 0, 1.0, advantage)
    slope = np.where(
        advantage == 0, 2**-0.5, (np.arcsinh(safe + 1) - np.log(1 + np.sqrt(2))) / safe
    )
    theirs = objective_gradient(game, logits, beta * slope * advantage / TAU)
    np.testing.assert_allclose(cast_gradient(game, logits, term), theirs, atol=ROUNDING)


def test_asinh_climbs_with_a_constant_beta_to_a_teacher_of_its_own() -> None:
    game = room()
    logits = some_logits(game)
    term = cast_term(game, logits, shifted_advantages(game), alpha=ALPHA, transform="asinh")
    teacher = torch.log_softmax(torch.tensor(term.signal) / TAU, dim=-1).numpy()
    beta = ALPHA * TAU / scale_by_hand(game, logits, term.signal)
    theirs = objective_gradient(game, logits, beta * teacher)
    np.testing.assert_allclose(cast_gradient(game, logits, term), theirs, atol=ROUNDING)


def solver_terms(game: FiniteGame, logits: Array, scale_of_a: float) -> tuple[Array, Array]:
    """Return the solver's part of CAST's gradient with asinh, and what the theorem says it is."""
    shifted = 1.0 + scale_of_a * (shifted_advantages(game) - 1.0)
    term = cast_term(game, logits, shifted, alpha=ALPHA, transform="asinh")
    task = objective_gradient(game, logits, np.zeros_like(logits))
    beta = ALPHA * TAU / (np.sqrt(2) * scale_by_hand(game, logits, np.arcsinh(shifted)))
    teacher = torch.log_softmax(torch.tensor(shifted) / TAU, dim=-1).numpy()
    theirs = objective_gradient(game, logits, beta * teacher)
    return cast_gradient(game, logits, term) - task, theirs - task


def test_error_of_the_constant_beta_falls_with_the_square_of_small_advantages() -> None:
    game = room()
    logits = some_logits(game)
    errors = []
    for scale_of_a in (2**-9, 2**-10):
        ours, theirs = solver_terms(game, logits, scale_of_a)
        errors.append(np.linalg.norm(ours - theirs))
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.01)


def test_as_a_share_of_the_solver_term_that_error_falls_only_linearly() -> None:
    game = room()
    logits = some_logits(game)
    shares = []
    for scale_of_a in (2**-9, 2**-10):
        ours, theirs = solver_terms(game, logits, scale_of_a)
        shares.append(np.linalg.norm(ours - theirs) / np.linalg.norm(ours))
    assert shares[0] / shares[1] == pytest.approx(2.0, rel=0.01)


def test_on_real_costs_the_constant_beta_is_off_by_a_fifth() -> None:
    ours, theirs = solver_terms(room(), some_logits(room()), 1.0)
    assert 0.1 < np.linalg.norm(ours - theirs) / np.linalg.norm(ours) < 0.3


def test_corollary_fails_with_the_normalised_teacher_because_beta_depends_on_the_action() -> None:
    game = room()
    errors = theorem_errors(game, some_logits(game), alpha=ALPHA, tau=2.0, with_episodes=False)
    assert errors.asinh_beta_eff < ROUNDING
    assert errors.asinh_normalised > SURELY_NOT


def test_objective_whose_visits_move_has_another_gradient() -> None:
    game = room()
    logits = some_logits(game)
    shifted = shifted_advantages(game)
    term = cast_term(game, logits, shifted, alpha=ALPHA, transform="identity")
    free = torch.tensor(logits, requires_grad=True)
    visited, won = played(game, free)
    preferred = (torch.softmax(free, dim=-1) * torch.tensor(log_solver(game))).sum(dim=-1)
    (won + term.beta(TAU) * (visited * preferred).sum()).backward()
    assert free.grad is not None
    preferences = term.beta(TAU) * log_teacher(shifted, TAU)
    theirs = gradient(lambda moved: moving_objective(game, moved, preferences), logits)
    np.testing.assert_allclose(theirs, free.grad.numpy(), atol=ROUNDING)
    assert np.abs(cast_gradient(game, logits, term) - theirs).max() > SURELY_NOT


def test_objective_differentiated_through_the_rms_has_another_gradient() -> None:
    game = room()
    errors = theorem_errors(game, some_logits(game), alpha=ALPHA, tau=TAU, with_episodes=False)
    assert errors.moving_rms > SURELY_NOT


def test_objective_without_the_ineffective_actions_has_another_gradient() -> None:
    game = room()
    logits = some_logits(game)
    term = cast_term(game, logits, shifted_advantages(game), alpha=ALPHA, transform="identity")
    teacher = np.where(game.has_effect, log_solver(game), 0.0)
    theirs = objective_gradient(game, logits, term.beta(TAU) * teacher)
    assert np.abs(cast_gradient(game, logits, term) - theirs).max() > SURELY_NOT


def test_scale_of_the_term_is_a_number_and_its_beta_rises_with_alpha_and_tau() -> None:
    term = CastTerm(signal=np.array([[2.0]]), scale=4.0, alpha=0.5)
    assert term.solver_advantage.tolist() == [[0.5]]
    assert (term.beta(1.0), term.beta(3.0)) == (0.125, 0.375)
