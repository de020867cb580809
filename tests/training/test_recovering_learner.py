"""A learner that is lost and made anew, with a group's double that counts instead of learning."""

from __future__ import annotations

import pytest

from cast_ray.errors import LearnerError, LearnerLost
from cast_ray.training.recovering_learner import RecoveringLearner


class CountingGroup:
    """Stands in for a LearnerGroup: its weights are the number of steps it has taken."""

    def __init__(self) -> None:
        self.weights = 0
        self.is_closed = False

    def take_step(self) -> int:
        self.weights += 1
        return self.weights

    def close(self) -> None:
        self.is_closed = True


class Bench:
    """A recovering learner whose groups are kept; ``losses`` are the calls that lose a group."""

    def __init__(self, *losses: int, max_restarts: int = 5) -> None:
        self.groups: list[CountingGroup] = []
        self.recovered: list[str] = []
        self.steps_done = 0
        self._calls, self._losses = 0, losses
        self.learner = RecoveringLearner(
            self._start,  # type: ignore[arg-type]
            max_restarts=max_restarts,
            on_recovery=lambda what, seconds: self.recovered.append(what),
        )
        self.learner.set_restore(self._bring_back)  # type: ignore[arg-type]

    def _start(self) -> CountingGroup:
        self.groups.append(CountingGroup())
        return self.groups[-1]

    def _bring_back(self, group: CountingGroup) -> None:
        group.weights = self.steps_done

    def take_step(self) -> int:
        def work(group: CountingGroup) -> int:
            self._calls += 1
            done = group.take_step()
            if self._calls in self._losses:
                raise LearnerLost(f"rank 1 died in call {self._calls}")
            return done

        done = self.learner.call(work)  # type: ignore[arg-type]
        self.steps_done = done
        return done


def test_lost_step_is_taken_again_from_the_weights_before_it() -> None:
    bench = Bench(3)
    assert [bench.take_step() for _ in range(4)] == [1, 2, 3, 4]
    assert [group.is_closed for group in bench.groups] == [True, False]
    assert bench.recovered == ["rank 1 died in call 3"]


def test_loss_after_loss_is_survived_up_to_the_bound() -> None:
    bench = Bench(1, 2, 3)
    assert bench.take_step() == 1
    assert len(bench.groups) == 4


def test_one_loss_too_many_ends_the_run_by_its_name() -> None:
    bench = Bench(1, 2, 3, max_restarts=2)
    with pytest.raises(LearnerLost, match="rank 1 died in call 3"):
        bench.take_step()


def test_failure_that_is_no_loss_is_not_tried_again() -> None:
    bench = Bench()

    def fail(group: CountingGroup) -> None:
        raise LearnerError("the loss is not finite")

    with pytest.raises(LearnerError, match="not finite"):
        bench.learner.call(fail)  # type: ignore[arg-type]
    assert len(bench.groups) == 1


def test_group_that_fails_to_come_back_is_made_once_more() -> None:
    """A port that was taken, a checkpoint that could not be read: no loss, and no end."""
    bench = Bench(1)
    failures = [LearnerError("the port is taken")]

    def bring_back(group: CountingGroup) -> None:
        if failures:
            raise failures.pop()
        group.weights = bench.steps_done

    bench.learner.set_restore(bring_back)  # type: ignore[arg-type]
    assert bench.take_step() == 1
    assert len(bench.groups) == 3
