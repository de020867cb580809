"""Potential regression: its targets against a naive loop over the games' own rules, and its fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cast_ray.envs.gym import get_numeric_rules, widest_tier
from cast_ray.envs.gym.rush_hour import blocking_cells
from cast_ray.errors import LearnerError
from cast_ray.games import get_game
from cast_ray.games.game import Status
from cast_ray.games.generators import get_generator
from cast_ray.games.plugins import forget_plugins
from cast_ray.training.value_net.distill import (
    one_step_targets,
    potentials,
    regress,
    stage_targets,
)
from cast_ray.training.value_net.env import StartSettings
from cast_ray.training.value_net.states import StateCollector, States, check_values
from solver_actors.value_net.network import QNetwork, shape_for, state_values
from tests.support.installed import LIGHTS_OUT, install

GAMMA, PENALTY, WEIGHT = 0.9, 0.03, 0.05
TIERS = dict.fromkeys(("rush_hour", "sokoban", "minesweeper", "lights_out"), "mini")
KERNEL_GAMES = ("minesweeper", "rush_hour", "sokoban")


def small_network(game: str, *, seed: int = 0) -> QNetwork:
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "num_heads": 2, "num_layers": 1, "output_size": 24}
    return QNetwork(shape_for(game, TIERS[game], **sizes)).eval().requires_grad_(False)


def starts(game: str, *, num_boards: int = 6, is_dead: Any = None) -> StartSettings:
    rules, rng = get_game(game), np.random.default_rng(0)
    made = [get_generator(game)(rules.tiers[TIERS[game]], rng) for _ in range(num_boards)]
    return StartSettings(
        game=game,
        tier=TIERS[game],
        boards=tuple(map(rules.encode, made)),
        step_penalty=PENALTY,
        shuffle_vehicles=game == "rush_hour",
        is_dead=is_dead,
    )


def collected(game: str, *, num_states: int = 300, is_dead: Any = None) -> tuple[States, list[str]]:
    """Return states with their successors, and each state as text."""
    collector = StateCollector(starts(game, is_dead=is_dead), rng=np.random.default_rng(1))
    met = collector.collect(small_network(game), num_states=num_states, epsilon=0.5)
    return collector.with_successors(met), [get_numeric_rules(game).board(one) for one in met]


def naive_value(network: QNetwork, state: Any) -> float:
    """Return V of one state, by itself, through a Python loop over its legal actions."""
    game = network.shape.game
    arrays = get_numeric_rules(game).load(state, widest_tier(game, TIERS[game]))
    q = network(torch.from_numpy(arrays[0])[None])[0].tolist()
    legal = [value for value, ok in zip(q, arrays[1].tolist(), strict=True) if ok]
    return max(legal) if legal else 0.0


def naive_blocking(board: str) -> int:
    return sum(symbol != "." for symbol in board[12:18].split("A")[-1])


def naive_targets(network: QNetwork, board: str, *, weight: float) -> dict[str, float]:
    """Return the target of each legal action of a state, from the game's own rules."""
    game = get_game(network.shape.game)
    state = game.decode(board)
    targets: dict[str, float] = {}
    for action in network.shape.actions:
        after = game.apply(state, action).state
        if after is state:
            continue
        status = game.status(after)
        target = -PENALTY
        if status is Status.WON:
            target += 1
        elif status is Status.PLAYING:
            target += GAMMA * naive_value(network, after)
        if game.name == "rush_hour":
            target -= weight * naive_blocking(board)
        targets[action] = target
    return targets


@pytest.mark.parametrize("weight", [0.0, WEIGHT])
@pytest.mark.parametrize("game", KERNEL_GAMES)
def test_targets_of_a_stage_equal_a_loop_over_the_rules(game: str, weight: float) -> None:
    states, boards = collected(game, num_states=300 if game == "rush_hour" else 60)
    network = small_network(game, seed=3)
    targets = stage_targets(network, states, gamma=GAMMA, step_penalty=PENALTY, prior_weight=weight)
    for board, row, mask in zip(boards, targets.tolist(), states.masks.tolist(), strict=True):
        wanted = naive_targets(network, board, weight=weight)
        legal = {
            action: value
            for action, value, ok in zip(network.shape.actions, row, mask, strict=True)
            if ok
        }
        assert legal == pytest.approx(wanted, abs=1e-5)
    assert (targets[states.masks == 0] == 0).all()
    assert states.is_win.any() or game != "rush_hour"


def test_value_after_the_second_stage_is_the_one_step_potential_less_the_prior() -> None:
    states, boards = collected("rush_hour")
    network = small_network("rush_hour")
    values = [
        state_values(torch.from_numpy(targets), torch.from_numpy(states.masks))
        for targets in (
            stage_targets(network, states, gamma=GAMMA, step_penalty=PENALTY, prior_weight=w)
            for w in (0.0, WEIGHT)
        )
    ]
    blocking = torch.tensor([naive_blocking(board) for board in boards])
    assert blocking.unique().tolist() != [0]
    torch.testing.assert_close(values[1], values[0] - WEIGHT * blocking)


@pytest.mark.parametrize(
    ("row", "expected"),
    [("AA....", 0), ("..AA..", 0), ("AAB..C", 2), ("AABBCC", 4), (".BAAC.", 1), ("BBAA.x", 1)],
)
def test_blocking_cells_are_those_right_of_the_red_car(row: str, expected: int) -> None:
    symbols = ".x" + "ABC"
    cells = np.full((1, 6, 6), 3, np.uint8)  # whatever stands on other rows does not count
    cells[0, 2] = [symbols.index(symbol) for symbol in row]
    assert blocking_cells(cells).tolist() == [expected]


def test_a_dead_successor_ends_the_game_without_a_value() -> None:
    everything, _ = collected("rush_hour")
    dead, _ = collected("rush_hour", is_dead=lambda state: True)
    assert (everything.next_of >= 0).any()
    assert (dead.next_of == -1).all()
    targets = one_step_targets(dead, np.empty(0), gamma=GAMMA, step_penalty=PENALTY)
    played = targets[dead.state_of, dead.action_of]
    assert played.tolist() == pytest.approx((dead.is_win - PENALTY).tolist())


def test_a_successor_without_legal_moves_counts_as_nothing() -> None:
    states, _ = collected("sokoban")
    values = np.full(len(states.next_cells), -np.inf)
    targets = one_step_targets(states, values, gamma=GAMMA, step_penalty=PENALTY)
    played = targets[states.state_of, states.action_of]
    assert played.tolist() == pytest.approx((states.is_win - PENALTY).tolist())


def test_states_are_undecided_distinct_and_met_under_every_letter() -> None:
    states, boards = collected("rush_hour", num_states=400)
    assert len(set(boards)) == len(boards) == len(states.cells) == 400
    game = get_game("rush_hour")
    assert all(game.status(game.decode(board)) is Status.PLAYING for board in boards)
    assert set("".join(boards)) == set(".ABCDEFGHI")
    assert (states.masks.sum(axis=1) == np.bincount(states.state_of)).all()


def test_states_of_a_game_without_kernels_are_told_apart_by_their_boards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(LIGHTS_OUT, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    forget_plugins()
    try:
        _, boards = collected("lights_out", num_states=400)
        assert len(set(boards)) == len(boards) == 400
    finally:
        monkeypatch.undo()
        forget_plugins()


@pytest.mark.parametrize("weight", [float("nan"), 1e9])
def test_a_network_that_has_diverged_is_named(weight: float) -> None:
    network = small_network("rush_hour")
    check_values(network, starts("rush_hour"), step_penalty=PENALTY)
    network.head.bias.fill_(weight)
    with pytest.raises(LearnerError, match=r"diverged.*dqn\.lr"):
        check_values(network, starts("rush_hour"), step_penalty=PENALTY)


def test_values_that_are_no_numbers_are_not_learned() -> None:
    states, _ = collected("rush_hour", num_states=40)
    network = small_network("rush_hour")
    settings = {"epochs": 1, "batch_size": 16, "seed": 0, "on_epoch": lambda *_: None}
    targets = np.zeros(states.masks.shape, np.float32)
    diverging = {**settings, "epochs": 20, "lr": 1e30}
    with pytest.raises(LearnerError, match=r"(nan|inf).*epoch \d+.*distillation\.first_lr"):
        regress(network, states, targets + 1, **diverging)
    targets[3, 2] = np.nan
    with pytest.raises(LearnerError, match=r"targets.*not finite"):
        regress(network, states, targets, lr=1e-3, **settings)


def test_a_tier_with_few_states_ends_the_search_for_more() -> None:
    one = replace(starts("rush_hour", num_boards=1), shuffle_vehicles=False)
    collector = StateCollector(one, rng=np.random.default_rng(0))
    met = collector.collect(small_network("rush_hour"), num_states=10**6, epsilon=0.5)
    assert 0 < len(met) < 10**5


def test_same_seed_collects_the_same_states_and_learns_the_same_network() -> None:
    first, second = (collected("rush_hour", num_states=100)[0] for _ in range(2))
    assert first.cells.tobytes() == second.cells.tobytes()
    networks = [fitted(first, epochs=2, seed=seed)[0].state_dict() for seed in (5, 5, 6)]
    assert all(torch.equal(networks[0][name], networks[1][name]) for name in networks[0])
    assert any(not torch.equal(networks[0][name], networks[2][name]) for name in networks[0])


def fitted(
    states: States,
    *,
    epochs: int,
    seed: int = 0,
    junk: float = 0.0,
    start: QNetwork | None = None,
) -> tuple[QNetwork, np.ndarray, list[float]]:
    """Return a fitted network, its targets and the losses; ``junk`` is what illegal moves get."""
    network = start or small_network("rush_hour")
    targets = stage_targets(network, states, gamma=GAMMA, step_penalty=PENALTY, prior_weight=0.05)
    targets[states.masks == 0] = junk
    losses: list[float] = []
    after = regress(
        network,
        states,
        targets,
        epochs=epochs,
        lr=3e-3,
        batch_size=16,
        seed=seed,
        on_epoch=lambda epoch, loss: losses.append(loss),
    )
    return after, targets, losses


def test_regression_reaches_its_targets_and_leaves_the_frozen_network_alone() -> None:
    states, _ = collected("rush_hour", num_states=48)
    before = small_network("rush_hour")
    after, targets, losses = fitted(states, epochs=150, start=before)
    assert len(losses) == 150
    assert losses[-1] < 1e-3 < losses[0]
    wanted = state_values(torch.from_numpy(targets), torch.from_numpy(states.masks)).numpy()
    error = potentials(after, states.cells, states.masks) - wanted
    assert np.abs(error).max() < 0.1
    frozen = potentials(small_network("rush_hour"), states.cells, states.masks)
    assert frozen.tobytes() == potentials(before, states.cells, states.masks).tobytes()
    assert not any(parameter.requires_grad for parameter in after.parameters())


def test_what_illegal_moves_are_given_changes_nothing() -> None:
    states, _ = collected("rush_hour", num_states=48)
    plain, junk = (fitted(states, epochs=2, junk=value)[0] for value in (0.0, 1e6))
    for name, weight in plain.state_dict().items():
        assert torch.equal(weight, junk.state_dict()[name])
