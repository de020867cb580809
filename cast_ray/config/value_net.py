"""The configuration of a value network's training: the only place with its defaults.

The defaults are the paper's (app:dqn, tab:dqn_hp); where the paper is silent, a field says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cast_ray.config.checks import above, at_least, between, require
from cast_ray.config.train import PuzzleConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueNetShapeConfig:
    """The size of the network; its inputs and outputs follow from game and tier."""

    d_model: int = 128
    """Width of the encoder."""
    num_heads: int = 8
    """Attention heads of the encoder."""
    num_layers: int = 3
    """Layers of the encoder."""
    output_size: int = 512
    """Numbers that all cells together are read out to, before the Q-values."""

    def __post_init__(self) -> None:
        at_least(1, self, "network.", "d_model", "num_heads", "num_layers", "output_size")
        rule = f"a divisor of d_model ({self.d_model})"
        require(self.d_model % self.num_heads == 0, "network.num_heads", rule, self.num_heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class DqnConfig:
    """The base network: masked Double DQN on reward success - step_penalty.

    The paper gives steps, n_step, gamma, lr and step_penalty; the rest is ours.
    """

    steps: int = 3_000_000
    """Environment steps."""
    step_penalty: float = 0.01
    """The reward is 1 for a win, minus this for every step."""
    n_step: int = 3
    """Rewards that a target sums before it asks the target network."""
    gamma: float = 0.99
    """Discount per step."""
    lr: float = 1e-4
    """Adam's learning rate."""
    batch_size: int = 256
    """Transitions of one update."""
    replay_ratio: float = 4.0
    """Transitions learned from per step played."""
    replay_capacity: int = 300_000
    """Steps that the replay buffer holds."""
    learning_starts: int = 10_000
    """Steps played before the first update."""
    epsilon_start: float = 1.0
    """Probability of a random legal action at the beginning."""
    epsilon_end: float = 0.1
    """Probability of a random legal action at the end; it stays high, because teachers also judge
    bad play."""
    epsilon_steps: int = 1_000_000
    """Steps over which the one falls linearly to the other."""
    target_update_every: int = 10_000
    """Steps between copies of the network into the target network."""
    grad_clip: float = 10.0
    """Largest norm of a gradient."""
    num_env_runners: int = 0
    """Ray actors that play; 0 = this process plays."""
    envs_per_env_runner: int = 64
    """Games that one process plays at the same time, with one call of the network for all."""

    def __post_init__(self) -> None:
        at_least(1, self, "dqn.", "steps", "n_step", "batch_size", "replay_capacity")
        at_least(1, self, "dqn.", "epsilon_steps", "target_update_every", "envs_per_env_runner")
        at_least(0, self, "dqn.", "learning_starts", "num_env_runners")
        above(0, self, "dqn.", "lr", "replay_ratio", "grad_clip")
        between(0, 1, self, "dqn.", "epsilon_start", "epsilon_end")
        penalty, rule = self.step_penalty, "in [0, 1): at 1 a win would gain nothing"
        require(0 <= penalty < 1, "dqn.step_penalty", rule, penalty)
        require(0 < self.gamma <= 1, "dqn.gamma", "in (0, 1]", self.gamma)


@dataclass(frozen=True, slots=True, kw_only=True)
class PotentialConfig:
    """The two stages of potential regression that follow the base network.

    The paper gives epochs, learning rates and prior_weight; the rest is ours.
    """

    epochs: int = 150
    """Epochs of each stage of distillation."""
    first_lr: float = 1e-3
    """Peak learning rate of the first stage; cosine decay to zero."""
    second_lr: float = 5e-4
    """Peak learning rate of the second stage; cosine decay to zero."""
    num_states: int = 50_000
    """Most distinct states that are learned from."""
    epsilon: float = 0.5
    """Probability of a random move in half of the games that collect them; the other half is
    entirely random."""
    batch_size: int = 512
    """States of one update."""
    prior_weight: float = 0.05
    """What one occupied cell between red car and exit costs in the second stage."""

    def __post_init__(self) -> None:
        at_least(1, self, "distillation.", "epochs", "num_states", "batch_size")
        at_least(0, self, "distillation.", "prior_weight")
        above(0, self, "distillation.", "first_lr", "second_lr")
        between(0, 1, self, "distillation.", "epsilon")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueNetConfig:
    """One training of a value network (paper, tab:dqn_hp)."""

    run_dir: str = ""
    """Directory of the run; empty = runs/value-net-<game>-<tier>-<UTC time>."""
    seed: int = 0
    """Every random choice follows from it (the boards from puzzles.seed)."""
    game: str = "rush_hour"
    """A game with numeric rules."""
    tier: str = "id"
    """Size and difficulty of the boards that the network learns on."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the network learns."""
    num_threads: int = 1
    """Threads that the network learns with on the CPU."""
    shuffle_vehicles: bool = True
    """Rush Hour: rename the vehicles in every game, so that a network that learns from boards with
    few vehicles sees the letters of boards with more. The paper does not say. Other games have no
    vehicles."""
    checkpoint_every: int = 50_000
    """Environment steps between checkpoints of the base network."""
    puzzles: PuzzleConfig = field(default_factory=PuzzleConfig)
    network: ValueNetShapeConfig = field(default_factory=ValueNetShapeConfig)
    dqn: DqnConfig = field(default_factory=DqnConfig)
    distillation: PotentialConfig = field(default_factory=PotentialConfig)

    def __post_init__(self) -> None:
        at_least(1, self, "", "num_threads", "checkpoint_every")
