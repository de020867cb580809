"""The two stages after Double DQN: warm-started regression on a one-step potential (app:dqn).

The potential of a state is V(s) = max over legal a of Q(s, a). A stage freezes the network that it
starts from, with potential V, and regresses every legal Q of every state on

    first stage:   Q(s, a) = r(s, a) + gamma V(s')
    second stage:  Q(s, a) = r(s, a) + gamma V(s') - w b(s),   w = 0.05

with r = 1 - penalty for the move that solves and -penalty for any other; a decided s' adds nothing.
The prior is that of the state in which the move is made, so it is the same for all moves there:
after the second stage V(s) = one-step potential - w b(s), as in the paper, and the best move is
still that of the look-ahead. (With b(s') the prior would also choose among moves, and a state's V
would contain the prior of its best successor.)

No solver is used. Letters as in ``states``: ``S`` states, ``A`` actions, ``L`` moves,
``M`` undecided successors.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from cast_ray.envs.gym import get_numeric_rules
from cast_ray.errors import LearnerError
from cast_ray.training.value_net.states import States, q_values
from solver_actors.value_net.network import QNetwork, state_values

_GRAD_CLIP = 1.0
_WARM_UP_STEPS = 50


def prior_of(game: str, cells: np.ndarray, *, weight: float) -> np.ndarray:
    """Return ``[S]`` what the second stage adds to every legal Q of a state, 0 or less."""
    count = get_numeric_rules(game).prior
    return np.zeros(len(cells)) if count is None else -weight * count(cells)


def one_step_targets(
    states: States, next_values: np.ndarray, *, gamma: float, step_penalty: float
) -> np.ndarray:
    """Return ``[S, A]`` float32 r(s, a) + gamma V(s') of legal moves, 0 elsewhere.

    Args:
        states: with their successors.
        next_values: ``[M]`` V of the undecided successors; -inf if no move is legal, which counts
            as 0, as in the base network's loss.
        gamma: discount.
        step_penalty: what a move costs.
    """
    is_open = states.next_of >= 0
    bootstrap = np.zeros(len(states.next_of))
    reachable = np.where(np.isneginf(next_values), 0.0, next_values)
    bootstrap[is_open] = reachable[states.next_of[is_open]]
    targets = np.zeros(states.masks.shape, np.float32)
    targets[states.state_of, states.action_of] = states.is_win - step_penalty + gamma * bootstrap
    return targets


def potentials(network: QNetwork, cells: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Return ``[N]`` V of states as the network sees them; -inf if no move is legal."""
    q = torch.from_numpy(q_values(network, cells))
    return state_values(q, torch.from_numpy(masks)).numpy()


def stage_targets(
    frozen: QNetwork,
    states: States,
    *,
    gamma: float,
    step_penalty: float,
    prior_weight: float,
) -> np.ndarray:
    """Return the ``[S, A]`` targets of a stage; ``prior_weight`` is 0 in the first."""
    next_values = potentials(frozen, states.next_cells, states.next_masks)
    targets = one_step_targets(states, next_values, gamma=gamma, step_penalty=step_penalty)
    prior = prior_of(frozen.shape.game, states.cells, weight=prior_weight)
    return (targets + prior[:, None] * (states.masks != 0)).astype(np.float32)


def regress(
    start: QNetwork,
    states: States,
    targets: np.ndarray,
    *,
    epochs: int,
    lr: float,
    batch_size: int,
    seed: int,
    on_epoch: Callable[[int, float], None],
) -> QNetwork:
    """Return a copy of ``start`` after regression on the targets of all legal moves.

    Mean squared error over the legal moves of a batch, AdamW, cosine decay to zero after a short
    warm-up. The same seed gives the same network on the same machine.

    Args:
        start: the network to start from; not changed.
        states: ``S`` of them.
        targets: ``[S, A]``.
        epochs: passes over all states.
        lr: peak learning rate.
        batch_size: states of one update.
        seed: of the order of the states.
        on_epoch: called with each epoch, counted from 1, and its mean loss.

    Raises:
        LearnerError: a target or an epoch's loss is not finite.
    """
    if not np.isfinite(targets).all():
        raise LearnerError(
            "the regression targets hold values that are not finite: the frozen network is broken"
        )
    network = copy.deepcopy(start).requires_grad_(True).train()
    device = next(network.parameters()).device
    cells, masks = torch.from_numpy(states.cells), torch.from_numpy(states.masks) != 0
    wanted = torch.from_numpy(targets)
    optimizer = torch.optim.AdamW(network.parameters(), lr=lr)
    num_steps = epochs * -(-len(cells) // batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _cosine(num_steps))
    generator = torch.Generator().manual_seed(seed % 2**63)
    for epoch in range(1, epochs + 1):
        losses = []
        for rows in torch.randperm(len(cells), generator=generator).split(batch_size):
            batch = [part[rows].to(device) for part in (cells, masks, wanted)]
            loss = masked_squared_error(network(batch[0]), batch[2], batch[1])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), _GRAD_CLIP)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        mean = float(np.mean(losses))
        if not np.isfinite(mean):
            raise LearnerError(
                f"the loss is {mean} in epoch {epoch}: train again in another run_dir with smaller "
                "distillation.first_lr and second_lr"
            )
        on_epoch(epoch, mean)
    return network.eval().requires_grad_(False)


def masked_squared_error(q: Tensor, targets: Tensor, is_legal: Tensor) -> Tensor:
    """Return the mean squared error over legal moves; all arguments ``[B, A]``."""
    return ((q - targets)[is_legal] ** 2).mean()


def _cosine(num_steps: int) -> Callable[[int], float]:
    """Return the factor of the learning rate by update, counted from 0."""
    warm_up = min(_WARM_UP_STEPS, max(num_steps // 10, 1))

    def factor(step: int) -> float:
        if step < warm_up:
            return (step + 1) / warm_up
        return 0.5 * (1 + float(np.cos(np.pi * (step - warm_up) / max(num_steps - warm_up, 1))))

    return factor
