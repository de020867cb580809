"""Three steps of plain gradient descent, however the work is cut, against the naive loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.learner_double import Probes
from tests.support.learner_reference import (
    ALGORITHM_NAMES,
    OBJECTIVES,
    ROWS,
    NaivePolicy,
    build_table,
    relative_error,
    settings_for,
)

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

TABLE = build_table()
NUM_STEPS, LR = 3, 1.0


@pytest.fixture(scope="module", params=[(1, 0), (2, 2)], ids=["1 rank", "2 ranks, ZeRO 2"])
def probes(
    request: pytest.FixtureRequest,
    local_ray: None,
    policy_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Probes]:
    num_ranks, zero_stage = request.param
    probes = Probes(
        settings_for(policy_dir, lr=LR, zero_stage=zero_stage),
        num_ranks=num_ranks,
        start=tmp_path_factory.mktemp("start") / "checkpoint",
    )
    yield probes
    probes.close()


def naive_weights(policy_dir: Path, name: str, start_logprobs: np.ndarray) -> dict[str, np.ndarray]:
    """Weights after the steps by PyTorch's own descent in float64."""
    policy = NaivePolicy(policy_dir)
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=LR)
    reference = start_logprobs if OBJECTIVES[name].kl_coefficient else None
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        policy.loss(TABLE, start_logprobs, OBJECTIVES[name], reference).backward()
        optimizer.step()
    return {name: weight.detach().numpy() for name, weight in policy.model.named_parameters()}


@pytest.mark.parametrize("tokens_per_micro_batch", [180, 30])
@pytest.mark.parametrize("name", ALGORITHM_NAMES)
def test_three_steps_end_at_the_same_weights(
    probes: Probes,
    policy_dir: Path,
    start_logprobs: np.ndarray,
    name: str,
    tokens_per_micro_batch: int,
) -> None:
    objective = OBJECTIVES[name]
    reference = start_logprobs if objective.kl_coefficient else None
    probes.call("load_checkpoint", probes.start)
    probes.call("cut", tokens_per_micro_batch)
    before = probes.call("weights")

    for _ in range(NUM_STEPS):
        probes.call("update", TABLE, ROWS, objective, start_logprobs, reference)

    after, expected = probes.call("weights"), naive_weights(policy_dir, name, start_logprobs)
    assert relative_error(after, expected) < 1e-5
    # And the steps were no small ones.
    assert relative_error(before, expected) > 1e-2
