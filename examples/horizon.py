"""When does credit per turn teach more than the outcome? An experiment of minutes, without Ray.

A small network plays real Sokoban boards of one box, which it sees from where the player stands. It
imitates good play until it wins 3 games in 100, and is then trained by the functions of cast_ray:
costs of the exact solver, outcome and solver advantages, the clipped surrogate. Arms differ in
their credit alone; all arms of a seed share start and boards.

Printed for every horizon: the share of validation boards solved before and after training; the
difference in the area under the validation curve, paired by seed (95% t-interval); the ratio of the
steps that the arm and DAPO need for DAPO's best; and how many seeds it takes to see such a
difference with a power of 80%, if they spread like these.

    python examples/horizon.py                # 12 seeds, half an hour on one core
    python examples/horizon.py --strong-start --horizons 16
    python examples/horizon.py --seeds 2 --steps 4 --horizons 8 --lr 8e-4
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from scipy import stats
from torch import Tensor, nn

from cast_ray.algorithms import advantages
from cast_ray.algorithms.losses import clipped_surrogate, token_ratio
from cast_ray.games.generators import build_puzzles
from cast_ray.games.puzzles import Puzzle
from cast_ray.games.registry import get_game
from cast_ray.statistics import t_interval
from solver_actors.oracle import Oracle
from solver_actors.registry import StartSolver

GROUPS, GROUP_SIZE, MINI_BATCHES = 16, 8, 2
NUM_TRAIN, NUM_VALIDATION, ATTEMPTS = 384, 64, 4
TUNING_SEEDS = 4
MOST_CARELESS = 200
"""Updates: where boards are near, even random play wins more than is wanted."""
ACTIONS = ("Up", "Down", "Left", "Right")
HORIZONS = {8: (4, 6), 12: (6, 9), 16: (8, 12)}
"""Turns of an episode, and the costs of its boards."""
ARMS = {
    "DAPO": {"alpha": 0.0},
    "CAST": {},
    "whole trajectories": {"level": "trajectory_sum"},
    "shuffled": {"permute": True},
    "CAST, waiting costs 1": {"idle_price": -1.0},
}
"""What each does with the solver's signal; alpha is the command's unless it says 0."""
Player = Callable[[np.ndarray], np.ndarray]
"""From numbers of states ``[E]`` to probabilities of actions ``[E, 4]``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class World:
    """All states of some boards as arrays, so that a step of 128 games is a few array operations.

    ``S`` states.
    """

    planes: Tensor
    """``[S, 363]`` walls, target and box of each state, seen from the player."""
    after: np.ndarray
    """``[S, 4]`` number of the state after each action; its own where the action does nothing."""
    cost: np.ndarray
    """``[S]`` N(s); inf = no win is left."""
    starts: np.ndarray
    """``[boards]`` number of each board's first state."""


def explore(puzzles: Sequence[Puzzle], oracle: Oracle) -> World:
    """Return every state that play can come to from these boards."""
    game = get_game("sokoban")
    texts: list[str] = []
    after: list[list[int]] = []
    costs: list[np.ndarray] = []
    starts = []
    for puzzle in puzzles:
        first = len(texts)
        starts.append(first)
        numbers = {game.decode(puzzle.board): first}
        states = list(numbers)
        for state in states:  # grows while it is read
            row = []
            for action in ACTIONS:
                found = game.apply(state, action).state
                if found not in numbers:
                    numbers[found] = first + len(numbers)
                    states.append(found)
                row.append(numbers[found])
            after.append(row)
        own = [game.encode(state) for state in states]
        costs.append(oracle.cost_to_go("sokoban", own))
        texts += own
    return World(
        planes=torch.from_numpy(pictures(texts)),
        after=np.array(after),
        cost=np.concatenate(costs),
        starts=np.array(starts),
    )


def pictures(texts: Sequence[str]) -> np.ndarray:
    """Return ``[S, 3 * 11 * 11]`` walls, target and box as the player sees them from the middle."""
    cells = np.array([[list(row) for row in text.split("\n")] for text in texts])
    _, rows, cols = np.nonzero(np.isin(cells, ["P", "S"]))
    found = np.zeros((len(cells), 3, 11, 11), np.float32)
    found[:, 0] = 1.0  # all walls beyond the board
    number = np.arange(len(cells))[:, None, None]
    down = (5 - rows)[:, None, None] + np.arange(6)[None, :, None]
    right = (5 - cols)[:, None, None] + np.arange(6)[None, None, :]
    for plane, symbols in enumerate(("#", "O*S", "X*")):
        found[number, plane, down, right] = np.isin(cells, list(symbols))
    return found.reshape(len(cells), -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Games:
    """``E`` episodes of up to ``T`` turns; what comes after the end of one is not valid."""

    states: np.ndarray
    """``[E, T + 1]`` numbers of states."""
    actions: np.ndarray
    """``[E, T]`` numbers of actions."""
    num_turns: np.ndarray
    """``[E]``"""
    won: np.ndarray
    """``[E]`` bool."""

    @property
    def valid(self) -> np.ndarray:
        """Return ``[E, T]`` which turns were played."""
        return np.arange(self.actions.shape[1]) < self.num_turns[:, None]


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(363, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, len(ACTIONS))
    )


def play(
    world: World, choose: Player, starts: np.ndarray, turns: int, rng: np.random.Generator
) -> Games:
    """Play one episode from each start; ``choose`` returns ``[E, 4]`` probabilities of actions."""
    states, actions = [starts], []
    lengths = np.full(len(starts), turns)
    for turn in range(turns):
        now = states[-1]
        has_ended = (world.cost[now] == 0) | np.isinf(world.cost[now])
        lengths = np.where(has_ended & (lengths == turns), np.minimum(lengths, turn), lengths)
        chances = choose(now).cumsum(axis=1)
        drawn = (rng.random((len(now), 1)) * chances[:, -1:] > chances).sum(axis=1)
        drawn = np.minimum(drawn, len(ACTIONS) - 1)
        actions.append(drawn)
        states.append(np.where(has_ended, now, world.after[now, drawn]))
    return Games(
        states=np.stack(states, axis=1),
        actions=np.stack(actions, axis=1),
        num_turns=lengths,
        won=world.cost[states[-1]] == 0,
    )


def policy(world: World, model: nn.Module, temperature: float = 1.0) -> Player:
    """Return what ``play`` asks: the model's probabilities."""

    def choose(states: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            logits = model(world.planes[states]) / temperature
            return torch.softmax(logits, dim=1).numpy().astype(np.float64)

    return choose


def demonstrator(world: World, mistakes: float) -> Player:
    """Return a player of the best actions; this share of the turns is any move that moves."""
    cost_after = world.cost[world.after]
    moves = world.after != np.arange(len(world.after))[:, None]

    def choose(states: np.ndarray) -> np.ndarray:
        best = cost_after[states] == cost_after[states].min(axis=1, keepdims=True)
        other = moves[states] / np.maximum(moves[states].sum(axis=1, keepdims=True), 1)
        return (1 - mistakes) * best / best.sum(axis=1, keepdims=True) + mistakes * other

    return choose


@functools.cache
def taught(world: World, *, turns: int, is_strong: bool, wins: float, seed: int) -> nn.Module:
    """Return a network that imitation has taught to win this share of its games.

    A weak start stops imitating good play there. A strong one has seen much good play, and then
    imitates careless play until it wins no more than that: it knows moves that it seldom plays.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng([seed, 0])
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def imitate(mistakes: float, updates: int) -> None:
        for _ in range(updates):
            player = demonstrator(world, mistakes)
            games = play(world, player, rng.choice(world.starts, 64), turns, rng)
            loss = -logprobs(world, model, games).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def share() -> float:
        return success(world, model, turns, seed=seed, temperature=1.0)

    if is_strong:
        imitate(0.15, 1000)
        for _ in range(MOST_CARELESS):
            if share() <= wins:
                break
            imitate(0.95, 1)
    else:
        while share() < wins:
            imitate(0.15, 5)
    return model


def logprobs(world: World, model: nn.Module, games: Games) -> Tensor:
    """Return ``[B]`` log-probabilities of the actions of all valid turns, episode by episode."""
    valid = games.valid
    logits = model(world.planes[games.states[:, :-1][valid]])
    taken = torch.from_numpy(games.actions[valid])
    return torch.log_softmax(logits, dim=1).gather(1, taken[:, None])[:, 0]


def credit(
    world: World,
    games: Games,
    rng: np.random.Generator,
    *,
    alpha: float,
    level: str = "turn",
    permute: bool = False,
    idle_price: float = 0.0,
) -> np.ndarray:
    """Return ``[B]`` the advantage of each valid turn, by the equations that training uses."""
    costs = world.cost[games.states]
    moved = games.states[:, 1:] != games.states[:, :-1]
    shifted = np.concatenate(
        [
            advantages.shifted_solver_advantage(one[: n + 1], has[:n], rescue="cost")
            for one, has, n in zip(costs, moved, games.num_turns, strict=True)
        ]
    )
    shifted = np.where(moved[games.valid], shifted, idle_price)
    solver = advantages.rms_normalised(advantages.asinh(shifted), epsilon=1e-8)
    if permute:
        solver = rng.permutation(solver)
    if level != "turn":
        pooled = advantages.trajectory_credit(
            solver, games.num_turns, is_mean=level == "trajectory_mean"
        )
        solver = np.repeat(compared(pooled), games.num_turns)
    outcome = np.repeat(compared(games.won.astype(np.float64)), games.num_turns)
    return advantages.final_advantage(outcome, solver, alpha=alpha)


def compared(values: np.ndarray) -> np.ndarray:
    """Return each episode's value against those of its group."""
    groups = values.reshape(-1, GROUP_SIZE)
    found = [advantages.outcome_advantage(one, std="population", delta=1e-6) for one in groups]
    return np.concatenate(found)


def train(
    world: World,
    boards: World,
    start: nn.Module,
    arm: dict[str, object],
    *,
    turns: int,
    steps: int,
    lr: float,
    alpha: float,
    seed: int,
) -> list[float]:
    """Return the share of validation boards solved before the first and after every second step."""
    model = network()
    model.load_state_dict(start.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95))
    rng = np.random.default_rng([seed, 1])
    curve = [success(boards, model, turns, seed=seed)]
    for step in range(1, steps + 1):
        starts = np.repeat(rng.choice(world.starts, GROUPS, replace=False), GROUP_SIZE)
        games = play(world, policy(world, model), starts, turns, rng)
        given = {"alpha": alpha, **arm}
        advantage = torch.from_numpy(credit(world, games, rng, **given)).float()  # type: ignore[arg-type]
        with torch.no_grad():
            old = logprobs(world, model, games)
        group = np.repeat(np.arange(len(starts)) // GROUP_SIZE, games.num_turns)
        for part in np.split(rng.permutation(GROUPS), MINI_BATCHES):
            own = torch.from_numpy(np.isin(group, part))
            ratio = token_ratio(logprobs(world, model, games)[own], old[own])
            loss = clipped_surrogate(
                ratio, advantage[own], clip_low=0.2, clip_high=0.28, dual_clip=3.0
            ).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        if step % 2 == 0:
            curve.append(success(boards, model, turns, seed=seed))
    return curve


def success(
    boards: World, model: nn.Module, turns: int, *, seed: int, temperature: float = 0.6
) -> float:
    """Return the share of attempts at all boards that succeed."""
    starts = np.repeat(boards.starts, ATTEMPTS)
    rng = np.random.default_rng([seed, 2])
    return float(play(boards, policy(boards, model, temperature), starts, turns, rng).won.mean())


def seeds_needed(differences: Sequence[float], power: float = 0.8) -> float:
    """Return the fewest pairs whose two-sided t-test at 5% sees such a mean with this power."""
    effect = abs(np.mean(differences)) / np.std(differences, ddof=1)
    for n in range(2, 200):
        critical, shift = stats.t.ppf(0.975, n - 1), effect * np.sqrt(n)
        if 1 - stats.nct.cdf(critical, n - 1, shift) >= power:
            return n
    return float("inf")


def ratio_to_best(curve: np.ndarray, baseline: np.ndarray) -> float:
    """Return steps to the baseline's best over the baseline's own, of smoothed mean curves."""
    smooth, other = (
        pl.Series(one).ewm_mean(alpha=0.4, adjust=False).to_numpy() for one in (curve, baseline)
    )
    best = int(np.argmax(other))
    reached = np.flatnonzero(smooth >= other[best])
    return float(reached[0] / best) if len(reached) and best else float("inf")


def measure(turns: int, costs: tuple[int, int], given: argparse.Namespace) -> None:
    """Train every arm of every seed at one horizon, and print the table."""
    tier = f"proxy@6x6x1,{costs[0]}-{costs[1]},{turns}"
    count = NUM_TRAIN + NUM_VALIDATION
    puzzles = build_puzzles(
        game="sokoban", tier=tier, count=count, seed=0, solve=StartSolver("sokoban").solve
    )
    oracle = Oracle(max_bytes=2**28)
    world, boards = (explore(part, oracle) for part in (puzzles[:NUM_TRAIN], puzzles[NUM_TRAIN:]))
    curves: dict[str, list[list[float]]] = {name: [] for name in ARMS}

    def start_of(seed: int) -> nn.Module:
        strength = {"is_strong": given.strong_start, "wins": given.wins}
        return taught(world, turns=turns, seed=seed, **strength)

    def trained(arm: dict[str, object], seed: int, lr: float) -> list[float]:
        own = {"turns": turns, "steps": given.steps, "lr": lr, "alpha": given.alpha}
        return train(world, boards, start_of(seed), arm, seed=seed, **own)

    # Chosen for DAPO, and on other seeds than those of the comparison.
    areas = {
        lr: np.mean([trained(ARMS["DAPO"], 1000 + seed, lr) for seed in range(TUNING_SEEDS)])
        for lr in given.lr
    }
    lr = max(areas, key=areas.__getitem__)
    for seed in range(given.seeds):
        for name, arm in ARMS.items():
            curves[name].append(trained(arm, seed, lr))
    baseline = np.array(curves["DAPO"])
    tried = ", ".join(f"{rate:g}: {area:.3f}" for rate, area in areas.items())
    at_start = [
        success(world, start_of(seed), turns, seed=seed, temperature=1.0) for seed in range(3)
    ]
    print(
        f"\n{turns} turns, N {costs[0]} to {costs[1]}, {given.seeds} seeds, learning rate {lr:g} "
        f"(area of DAPO by rate: {tried}); wins at temperature 1 before: {np.mean(at_start):.1%}"
    )
    print(f"{'':24} {'first':>6} {'last':>6}  {'area against DAPO (95%)':26} ratio  seeds needed")
    for name, found in curves.items():
        own = np.array(found)
        text = f"{name:24} {own[:, 0].mean():6.1%} {own[:, -1].mean():6.1%}"
        if name != "DAPO":
            difference = (own - baseline).mean(axis=1)
            area = t_interval(difference.tolist())
            ratio = ratio_to_best(own.mean(axis=0), baseline.mean(axis=0))
            text += (
                f"  {area.value:+.3f} ({area.low:+.3f} to {area.high:+.3f})"
                f"{'':4} {ratio:5.2f}  {seeds_needed(difference):g}"
            )
        print(text, flush=True)


def main() -> None:
    """Read the command line and measure every horizon."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--horizons", type=int, nargs="+", choices=HORIZONS, default=[*HORIZONS])
    parser.add_argument("--alpha", type=float, default=0.1, help="weight of the solver's signal")
    parser.add_argument(
        "--lr",
        type=float,
        nargs="+",
        default=[2e-4, 4e-4, 8e-4, 1.6e-3],
        help="learning rates to try; the best one for DAPO is used in all arms",
    )
    parser.add_argument("--wins", type=float, default=0.03, help="share of games won at the start")
    parser.add_argument("--strong-start", action="store_true", help="a start that knows good play")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for turns in given.horizons:
        measure(turns, HORIZONS[turns], given)


if __name__ == "__main__":
    main()
