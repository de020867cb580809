"""The updates of forward distillation, with a learner's double that notes what it is given."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import ray

from cast_ray.algorithms.distillation import teacher_demonstrations
from cast_ray.config.load import load_config
from cast_ray.errors import TrajectoryError
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.trajectory import TeacherTurns, to_rollout_batch, with_costs
from cast_ray.training.update import distill
from tests.support.credit_tables import changed
from tests.support.scripted import build_test_policy

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


class NotedUpdates:
    """Stands in for a LearnerGroup."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []
        self.rows: list[np.ndarray] = []
        self.lrs: list[float] = []

    def supervised_update(self, table: ray.ObjectRef, rows: np.ndarray, *, lr: float) -> float:
        self.tables.append(ray.get(table))
        self.rows.append(rows)
        self.lrs.append(lr)
        return 0.0


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return build_test_policy(tmp_path_factory.mktemp("policy"))


def step_table(actions: tuple[str, ...]) -> pa.Table:
    """Return four groups of two trajectories of two turns."""
    rows = [changed(2, group=g, episode=e, reward=0.0) for g in range(4) for e in range(2)]
    teacher = TeacherTurns(logprobs=np.full(16, -1.0), actions=actions)
    batch = with_costs(to_rollout_batch(rows), np.zeros(24), teacher)
    return pa.Table.from_batches([batch])


def test_every_turn_is_in_one_update_and_every_group_whole(tokenizer: ChatTokenizer) -> None:
    learner = NotedUpdates()
    config = load_config(None, ["algorithm=distill_forward", "learner.lr=0.25"])
    table = step_table(("Up",) * 16)
    distill(learner, table, tokenizer, config, step=3)  # type: ignore[arg-type]
    assert learner.lrs == [0.25, 0.25]
    assert learner.tables[0].equals(teacher_demonstrations(table, tokenizer))
    assert sorted(np.concatenate(learner.rows).tolist()) == list(range(16))
    groups = np.array(learner.tables[0]["group"])
    first, second = (set(groups[rows]) for rows in learner.rows)
    assert not first & second
    assert len(first) == len(second) == 2


def test_step_whose_teacher_knows_too_little_is_refused_in_words(tokenizer: ChatTokenizer) -> None:
    config = load_config(None, ["algorithm=distill_forward"])
    table = step_table(("Up",) * 4 + ("",) * 12)
    with pytest.raises(TrajectoryError, match=r"\b1 groups.* 2 mini.*learner\.mini_batches"):
        distill(NotedUpdates(), table, tokenizer, config, step=3)  # type: ignore[arg-type]
