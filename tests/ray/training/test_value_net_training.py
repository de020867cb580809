"""A value network through RLlib: what is masked, what the loss aims at, and a whole small run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from ray import tune
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from typer.testing import CliRunner

from cast_ray.cli.main import app
from cast_ray.config.train import PuzzleConfig
from cast_ray.config.value_net import (
    DqnConfig,
    PotentialConfig,
    ValueNetConfig,
    ValueNetShapeConfig,
)
from cast_ray.datasets.splits import read_boards
from cast_ray.envs.gym import get_numeric_rules, widest_tier
from cast_ray.envs.gym.rush_hour import renamed_vehicles
from cast_ray.errors import RunDirectoryError
from cast_ray.games import get_game
from cast_ray.training.value_net.directory import BaseCheckpoints
from cast_ray.training.value_net.dqn import (
    NStepEpisodeReplayBuffer,
    build_config,
    network_of,
    network_shape,
    train_base,
)
from cast_ray.training.value_net.env import (
    StartSettings,
    ValueNetEnv,
    start_settings,
)
from cast_ray.training.value_net.progress import ValueNetProgress
from cast_ray.training.value_net.rl_module import MaskedQModule, epsilon_greedy
from cast_ray.training.value_net.train import train_value_net
from solver_actors.value_net.network import load_q_network

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # RLlib registers its own environments anew for every algorithm.
    pytest.mark.filterwarnings("ignore::UserWarning:gymnasium"),
]

GAMMA, PENALTY, N_STEP = 0.9, 0.03, 3
BOARD = "..B.....B...AAB......C....DC....D..."
"""Two moves from the goal."""
TINY = ValueNetConfig(
    tier="mini",
    checkpoint_every=300,
    puzzles=PuzzleConfig(num_train=6, num_validation=1, num_held_out=4),
    network=ValueNetShapeConfig(d_model=16, num_heads=2, num_layers=1, output_size=24),
    dqn=DqnConfig(
        steps=900,
        step_penalty=PENALTY,
        gamma=GAMMA,
        n_step=N_STEP,
        batch_size=16,
        replay_ratio=0.5,
        learning_starts=100,
        epsilon_steps=500,
        target_update_every=200,
        envs_per_env_runner=8,
    ),
    distillation=PotentialConfig(epochs=2, num_states=40, batch_size=16),
)
NUM_ACTIONS = 72


def module_of(config: ValueNetConfig = TINY, *, epsilon: float) -> MaskedQModule:
    env = ValueNetEnv({"start": start_of(config)})
    torch.manual_seed(0)
    return MaskedQModule(
        observation_space=env.observation_space,
        action_space=env.action_space,
        model_config={"shape": network_shape(config), "epsilon": epsilon},
    )


def start_of(config: ValueNetConfig = TINY) -> StartSettings:
    return StartSettings(
        game="rush_hour",
        tier="mini",
        boards=(BOARD,),
        step_penalty=config.dqn.step_penalty,
        shuffle_vehicles=config.shuffle_vehicles,
    )


def observations(masks: list[set[int]]) -> dict[str, dict[str, torch.Tensor]]:
    """Return a batch of one board under masks of our own."""
    arrays = get_numeric_rules("rush_hour").load(
        get_game("rush_hour").decode(BOARD), widest_tier("rush_hour", "mini")
    )
    mask = torch.zeros((len(masks), NUM_ACTIONS), dtype=torch.int8)
    for row, legal in enumerate(masks):
        mask[row, list(legal)] = 1
    cells = torch.from_numpy(arrays[0]).expand(len(masks), 6, 6)
    return {Columns.OBS: {"cells": cells, "action_mask": mask}}


def with_q(module: MaskedQModule, q: list[float]) -> MaskedQModule:
    """Let the network answer these Q-values for every board."""
    with torch.no_grad():
        module.network.head.weight.zero_()
        module.network.head.bias.copy_(torch.tensor(q))
    return module


def played(module: MaskedQModule, legal: set[int], *, times: int = 600) -> set[int]:
    """Return the actions that exploration chooses in so many draws."""
    chosen = module.forward_exploration(observations([legal] * times), t=0)[Columns.ACTIONS]
    return set(chosen.tolist())


# Masks


def test_an_illegal_action_of_the_largest_value_is_never_played() -> None:
    module = with_q(module_of(epsilon=0.5), [9.0] * 3 + [-1.0, -2.0] + [9.0] * 67)
    assert played(module, {3, 4}) == {3, 4}
    greedy = module.forward_inference(observations([{3, 4}, {4}]))[Columns.ACTIONS]
    assert greedy.tolist() == [3, 4]


def test_a_legal_action_of_value_zero_is_drawn_as_often_as_the_others() -> None:
    q = torch.tensor([[0.0, -1.0, 5.0, 0.0]]).expand(4000, 4)
    mask = torch.tensor([[1, 1, 1, 0]]).expand(4000, 4)
    torch.manual_seed(0)
    counts = torch.bincount(epsilon_greedy(q, mask, epsilon=1.0), minlength=4)
    assert counts[3] == 0
    assert counts[:3].min() > 1200  # of 1333 expected; 4 standard deviations are 119


def test_the_best_legal_action_is_greedy_whatever_illegal_ones_are_worth() -> None:
    q = torch.tensor([[9.0, -1.0, -2.0], [9.0, -2.0, 0.0]])
    mask = torch.tensor([[0, 1, 1], [0, 1, 1]])
    assert epsilon_greedy(q, mask, epsilon=0.0).tolist() == [1, 2]


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_a_zero_initialised_head_plays_legal_actions_only(epsilon: float) -> None:
    module = with_q(module_of(epsilon=epsilon), [0.0] * NUM_ACTIONS)
    assert played(module, {7, 40, 71}) <= {7, 40, 71}
    assert played(module, {7, 40, 71}) == ({7} if epsilon == 0 else {7, 40, 71})


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_the_only_legal_action_is_played_and_none_at_all_is_no_error(epsilon: float) -> None:
    module = module_of(epsilon=epsilon)
    assert played(module, {13}) == {13}
    assert played(module, set()) == {0}
    mixed = module.forward_exploration(observations([set(), {5}]), t=0)[Columns.ACTIONS]
    assert mixed.tolist() == [0, 5]


def test_epsilon_follows_the_steps() -> None:
    env = ValueNetEnv({"start": start_of()})
    module = MaskedQModule(
        observation_space=env.observation_space,
        action_space=env.action_space,
        model_config={"shape": network_shape(TINY), "epsilon": [(0, 1.0), (100, 0.0)]},
    )
    with_q(module, [0.0] * 5 + [1.0] + [0.0] * 66)
    legal = observations([{4, 5}] * 2000)
    torch.manual_seed(0)
    shares = [
        (module.forward_exploration(legal, t=t)[Columns.ACTIONS] == 5).float().mean().item()
        for t in (0, 50, 100, 10**6)
    ]
    assert shares == pytest.approx([0.5, 0.75, 1.0, 1.0], abs=0.05)


# Replay and loss


def episode(rewards: list[float], *, terminated: bool, seed: int = 0) -> SingleAgentEpisode:
    """Return an episode of random boards and masks that ends, by itself or by the turn budget."""
    env, rng = ValueNetEnv({"start": start_of()}), np.random.default_rng(seed)
    made = SingleAgentEpisode(
        observation_space=env.observation_space, action_space=env.action_space
    )

    def observation(*, is_last: bool = False) -> dict[str, np.ndarray]:
        mask = (rng.random(NUM_ACTIONS) < 0.2).astype(np.int8)
        # A game that is over leaves nothing to do.
        mask[0], mask[:] = 1, mask * (not (is_last and terminated))
        return {"cells": rng.integers(0, 11, (6, 6)).astype(np.uint8), "action_mask": mask}

    current = observation()
    made.add_env_reset(observation=current)
    for number, reward in enumerate(rewards):
        is_last = number == len(rewards) - 1
        action = int(rng.choice(np.flatnonzero(current["action_mask"])))
        current = observation(is_last=is_last)
        made.add_env_step(
            observation=current,
            action=action,
            reward=reward,
            terminated=is_last and terminated,
            truncated=is_last and not terminated,
        )
    return made


def buffer_of(
    *episodes: SingleAgentEpisode, cut_after: int = 0, seed: int = 0
) -> NStepEpisodeReplayBuffer:
    """Return a buffer that got each episode whole, or in two pieces as env runners hand over."""
    buffer = NStepEpisodeReplayBuffer(seed=seed, capacity=10_000)
    for one in episodes:
        if cut_after:
            buffer.add(one[:cut_after].to_numpy())
            rest = one[cut_after:]
            rest.is_terminated, rest.is_truncated = one.is_terminated, one.is_truncated
            buffer.add(rest.to_numpy())
        else:
            buffer.add(one.to_numpy())
    return buffer


def sampled(
    buffer: NStepEpisodeReplayBuffer, *, count: int = 200, gamma: float = GAMMA
) -> list[SingleAgentEpisode]:
    return buffer.sample(num_items=count, n_step=N_STEP, gamma=gamma, sample_episodes=True)


@pytest.mark.parametrize("terminated", [True, False])
@pytest.mark.parametrize(
    ("num_steps", "cut_after"), [(1, 0), (2, 0), (3, 0), (7, 0), (2, 1), (7, 1), (7, 3), (7, 6)]
)
def test_replayed_transitions_hold_the_n_step_return_to_the_episodes_end(
    num_steps: int, cut_after: int, terminated: bool
) -> None:
    rewards = [round(0.1 * (t + 1), 1) for t in range(num_steps)]
    whole = episode(rewards, terminated=terminated)
    seen = set()
    for transition in sampled(buffer_of(whole, cut_after=cut_after)):
        t = transition.t_started
        seen.add(t)
        last = min(t + N_STEP, num_steps)
        n_step_return = sum(GAMMA ** (i - t) * rewards[i] for i in range(t, last))
        assert transition.get_rewards(0) == pytest.approx(n_step_return)
        assert transition.get_actions(0) == whole.get_actions(t)
        for at, place in ((0, t), (-1, last)):
            for part, array in transition.get_observations(at).items():
                assert (array == whole.get_observations(place)[part]).all()
        assert transition.extra_model_outputs["n_step"].data.tolist() == [last - t]
        assert transition.is_terminated == (terminated and last == num_steps)
        assert transition.is_truncated == (not terminated and last == num_steps)
    assert seen == set(range(num_steps))


def test_transitions_of_episodes_that_made_room_for_others_are_gone() -> None:
    buffer = NStepEpisodeReplayBuffer(seed=0, capacity=20)
    for number in range(8):
        buffer.add(episode([float(number)] * 6, terminated=True).to_numpy())
    drawn = sampled(buffer)
    # Every step of an episode has its number as reward.
    weights = [sum(GAMMA**k for k in range(min(N_STEP, 6 - one.t_started))) for one in drawn]
    numbers = {
        round(one.get_rewards(0) / weight, 6) for one, weight in zip(drawn, weights, strict=True)
    }
    assert numbers == {5.0, 6.0, 7.0}
    assert {one.t_started for one in drawn} == set(range(6))


def test_an_episode_that_is_under_way_ends_nothing() -> None:
    under_way = episode([0.1] * 5, terminated=False)
    under_way.is_truncated = False
    for transition in sampled(buffer_of(under_way)):
        assert not transition.is_done
        left = min(N_STEP, 5 - transition.t_started)
        assert transition.extra_model_outputs["n_step"].data.tolist() == [left]


def test_same_seed_replays_the_same_transitions() -> None:
    whole = episode([0.1] * 7, terminated=True)
    drawn = [
        [one.t_started for one in sampled(buffer_of(whole, seed=seed), count=50)]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.fixture(scope="module")
def algorithm(local_ray: None) -> Iterator[Any]:
    """Yield RLlib's algorithm with a target network that is not the online one."""
    built = build_config(TINY, start_of()).build_algo()
    module = learner_module(built)
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in module.network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    yield built
    built.stop()


def learner_module(algorithm: Any) -> MaskedQModule:
    return algorithm.learner_group._learner.module["default_policy"].unwrapped()


def naive_target(module: MaskedQModule, transition: SingleAgentEpisode) -> float:
    """Return r + gamma^k Q_target(s', argmax over legal a of Q_online(s', a)) of one transition."""
    target = float(transition.get_rewards(0))
    after = transition.get_observations(-1)
    legal = np.flatnonzero(after["action_mask"]).tolist()
    if transition.is_terminated:
        return target
    cells = torch.from_numpy(after["cells"])[None]
    with torch.no_grad():
        online, frozen = module.network(cells)[0], module._target_network(cells)[0]
    best = max(legal, key=lambda action: online[action].item())
    num_rewards = transition.extra_model_outputs["n_step"].data.item()
    return target + GAMMA**num_rewards * frozen[best].item()


def test_rllibs_loss_aims_at_the_double_dqn_target_over_legal_actions(algorithm: Any) -> None:
    learner, module = algorithm.learner_group._learner, learner_module(algorithm)
    buffer = buffer_of(
        episode([-PENALTY] * 4 + [1 - PENALTY], terminated=True, seed=1),
        episode([-PENALTY] * 6, terminated=False, seed=2),
        episode([1 - PENALTY], terminated=True, seed=3),
    )
    transitions = sampled(buffer, count=64)
    targets = [naive_target(module, one) for one in transitions]
    cells = torch.from_numpy(np.stack([one.get_observations(0)["cells"] for one in transitions]))
    chosen = torch.tensor([int(one.get_actions(0)) for one in transitions])
    with torch.no_grad():
        q = module.network(cells).gather(1, chosen[:, None])[:, 0]
    expected = torch.nn.functional.huber_loss(q, torch.tensor(targets))

    loss, td_errors = loss_of(learner, transitions)

    assert loss == pytest.approx(expected.item(), rel=1e-4)
    wanted = (q - torch.tensor(targets)).abs().tolist()
    assert td_errors.tolist() == pytest.approx(wanted, rel=1e-3, abs=1e-5)


def loss_of(learner: Any, transitions: list[SingleAgentEpisode]) -> tuple[float, torch.Tensor]:
    """Return the loss and ``[B]`` absolute errors that RLlib computes of transitions."""
    batch = learner._learner_connector(
        rl_module=learner.module, batch={}, episodes=transitions, shared_data={}, metrics=None
    )["default_policy"]
    module = learner_module_of(learner)
    outputs = module.forward_train(batch)
    loss = learner.compute_loss_for_module(
        module_id="default_policy",
        config=learner.config.get_config_for_module("default_policy"),
        batch=batch,
        fwd_out=outputs,
    )
    logged = learner.metrics.peek(("default_policy", "td_error"))
    return loss.item(), torch.as_tensor(np.asarray(logged)).flatten()[-len(transitions) :]


def learner_module_of(learner: Any) -> MaskedQModule:
    return learner.module["default_policy"].unwrapped()


def test_a_terminal_state_without_legal_actions_gives_finite_loss_and_gradients(
    algorithm: Any,
) -> None:
    learner, module = algorithm.learner_group._learner, learner_module(algorithm)
    transitions = sampled(buffer_of(episode([1 - PENALTY], terminated=True)), count=8)
    assert not any(one.get_observations(-1)["action_mask"].any() for one in transitions)
    batch = learner._learner_connector(
        rl_module=learner.module, batch={}, episodes=transitions, shared_data={}, metrics=None
    )["default_policy"]
    loss = learner.compute_loss_for_module(
        module_id="default_policy",
        config=learner.config.get_config_for_module("default_policy"),
        batch=batch,
        fwd_out=module.forward_train(batch),
    )
    module.zero_grad()
    loss.backward()
    gradients = [p.grad for p in module.network.parameters() if p.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)
    module.zero_grad()


# Environment


def test_reward_is_success_less_the_penalty_of_a_step() -> None:
    env = ValueNetEnv({"start": replace(start_of(), shuffle_vehicles=False)})
    observation, _ = env.reset(seed=0)
    rng, rewards = np.random.default_rng(3), []
    terminated = truncated = False
    while not (terminated or truncated):
        action = rng.choice(np.flatnonzero(observation["action_mask"]))
        observation, reward, terminated, truncated, _ = env.step(action)
        rewards.append(reward)
    assert rewards[:-1] == pytest.approx([-PENALTY] * (len(rewards) - 1))
    assert rewards[-1] == pytest.approx(terminated - PENALTY)


def test_vehicles_are_renamed_one_to_one_and_the_red_car_never() -> None:
    rng = np.random.default_rng(0)
    boards = [renamed_vehicles(BOARD, "ABCDEFGHI", rng) for _ in range(200)]
    for board in boards:
        assert [symbol == "A" for symbol in board] == [symbol == "A" for symbol in BOARD]
        pairs = set(zip(BOARD, board, strict=True))
        assert len(pairs) == len(set(BOARD)) == len(set(board))
    assert set("".join(boards)) == set(".ABCDEFGHI")


def test_only_rush_hour_has_vehicles_to_shuffle() -> None:
    for game, shuffles in (("rush_hour", True), ("sokoban", False)):
        config = ValueNetConfig(game=game, tier="mini")
        assert start_settings(config, []).shuffle_vehicles == shuffles


# Whole runs


def quiet(config: ValueNetConfig, *, resume: bool = False) -> Path:
    with ValueNetProgress() as progress:
        return train_value_net(config, resume=resume, progress=progress).path


def test_a_small_run_goes_through_all_stages_and_resumes_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(TINY, run_dir=str(tmp_path / "run"))
    run = quiet(config)
    networks = {name: load_q_network(run / name) for name in ("base", "stage1", "stage2")}
    final = load_q_network(run / "value_net")
    assert final.shape == network_shape(config)
    for name, weight in networks["stage2"].state_dict().items():
        assert torch.equal(weight, final.state_dict()[name])
    assert not torch.equal(networks["base"].head.weight, networks["stage1"].head.weight)
    boards = read_boards(run / "puzzles")
    ids = [puzzle.puzzle_id for puzzle in (*boards.train, *boards.held_out)]
    assert len(set(ids)) == len(ids) == 10
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["stage"] for row in rows][-7:] == ["states", *["stage1"] * 3, *["stage2"] * 3]
    assert rows[0]["steps"] >= 900
    assert json.loads((run / "summary.json").read_text())["boards"] == 6

    kept = (run / "stage1" / "q_network.safetensors").stat().st_mtime_ns
    (run / "stage2" / "q_network.json").unlink()
    quiet(config, resume=True)
    assert (run / "stage1" / "q_network.safetensors").stat().st_mtime_ns == kept
    again = load_q_network(run / "value_net")
    for name, weight in final.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name])
    assert "stage1 is finished" in capsys.readouterr().out
    # What was lived again is told once, and how long each stage took is still known.
    again_rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["stage"] for row in again_rows].count("stage2") == 3
    assert [row["stage"] for row in again_rows].count("states") == 1
    seconds = json.loads((run / "summary.json").read_text())["seconds"]
    assert all(seconds[stage] > 0 for stage in ("base", "stage1", "stage2"))

    with pytest.raises(RunDirectoryError, match=r"dqn\.gamma \(0\.9 .*run_dir=PATH"):
        quiet(replace(config, dqn=replace(config.dqn, gamma=0.5)), resume=True)
    with pytest.raises(RunDirectoryError, match=r"run_dir=PATH.*--resume"):
        quiet(config)


def test_a_base_network_goes_on_from_its_newest_whole_checkpoint(
    local_ray: None, tmp_path: Path
) -> None:
    config = replace(TINY, dqn=replace(TINY.dqn, steps=4500))
    start, checkpoints = start_of(), BaseCheckpoints(tmp_path / "checkpoints")
    rounds: list[int] = []
    notes: list[str] = []

    def stop_late(round_: Any) -> None:
        rounds.append(round_.steps)
        if len(rounds) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_base(config, start, checkpoints, on_round=stop_late, on_note=notes.append)
    steps, newest, _ = checkpoints.newest()
    assert steps == rounds[0]
    assert newest is not None

    damaged = tmp_path / "checkpoints" / f"steps-{steps + 1:010d}"
    damaged.mkdir()
    rounds.clear()
    train_base(
        config,
        start,
        checkpoints,
        on_round=lambda round_: rounds.append(round_.steps),
        on_note=notes.append,
    )
    assert rounds[0] > steps
    assert rounds[0] < 2 * steps + 500
    assert rounds[-1] >= 4500
    assert "is not a complete checkpoint" in notes[0]
    assert f"resumed after {steps:,} steps" in notes[1]


def test_a_restored_algorithm_has_the_weights_and_the_epsilon_of_the_saved_one(
    local_ray: None, tmp_path: Path
) -> None:
    first = build_config(TINY, start_of()).build_algo()
    first.train()
    first.save_to_path(str(tmp_path / "checkpoint"))
    second = build_config(replace(TINY, seed=5), start_of()).build_algo()
    second.restore_from_path(str(tmp_path / "checkpoint"))
    shape = network_shape(TINY)
    weights = [network_of(one, shape).state_dict() for one in (first, second)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    runners: list[Any] = [one.env_runner for one in (first, second)]  # Any: declared as optional
    played_steps = [runner.num_env_steps_sampled_lifetime for runner in runners]
    assert played_steps[0] == played_steps[1] >= 900
    first.stop()
    second.stop()


def test_a_resumed_run_fills_its_replay_before_it_learns() -> None:
    resumed = build_config(TINY, start_of(), steps_done=500)
    assert resumed.num_steps_sampled_before_learning_starts == 600


def test_tune_searches_over_our_configuration(local_ray: None, tmp_path: Path) -> None:
    # Any: Tune takes RLlib's configurations, and declares dictionaries alone.
    space: Any = build_config(TINY, start_of()).training(lr=tune.grid_search([1e-3, 1e-4]))
    results = tune.Tuner(
        "DQN",
        param_space=space,
        run_config=tune.RunConfig(
            storage_path=str(tmp_path),
            stop={"training_iteration": 1},
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
            verbose=0,
        ),
    ).fit()
    assert [result.error for result in results] == [None, None]
    for result in results:
        assert result.metrics is not None
        assert result.metrics["env_runners"]["success"] >= 0
        assert result.checkpoint is not None


def test_playing_actors_are_counted_right(local_ray: None) -> None:
    config = replace(
        TINY, dqn=replace(TINY.dqn, num_env_runners=2, envs_per_env_runner=4, replay_ratio=2.0)
    )
    built = build_config(config, start_of()).build_algo()
    try:
        result = built.train()
        steps = result["env_runners"]["num_env_steps_sampled_lifetime"]
        learned = result["learners"]["default_policy"]["num_module_steps_trained_lifetime"]
    finally:
        built.stop()
    assert learned == pytest.approx(2.0 * (steps - config.dqn.learning_starts), rel=0.2)


def test_the_command_line_refuses_what_cannot_be_before_it_makes_anything(tmp_path: Path) -> None:
    for overrides, message in (
        (["dqn.stepz=3"], "key dqn.stepz"),
        (["dqn.gamma=1.5"], "dqn.gamma must be in (0, 1], got 1.5"),
        (["game=chess"], "got 'chess'"),
    ):
        run_dir = tmp_path / "run"
        result = CliRunner().invoke(app, ["value-net", "train", f"run_dir={run_dir}", *overrides])
        assert result.exit_code != 0
        assert message in str(result.exception)
        assert not run_dir.exists()


def test_the_configurations_own_boards_are_begun_with_unless_others_are_given() -> None:
    built = build_config(TINY)
    start = built.env_config["start"]
    assert (len(start.boards), start.game, start.tier) == (6, "rush_hour", "mini")
    assert str(start) == "6 boards of rush_hour:mini"
    assert start == start_settings(TINY, read_from(TINY))


def read_from(config: ValueNetConfig) -> Any:
    from cast_ray.datasets.splits import make_boards

    return make_boards(config.game, config.tier, config.puzzles).train


@pytest.fixture(autouse=True)
def _no_ray_left(request: pytest.FixtureRequest) -> None:
    """A whole run starts a Ray of its own: not beside the module's."""
    if "local_ray" not in request.fixturenames and ray.is_initialized():
        ray.shutdown()
