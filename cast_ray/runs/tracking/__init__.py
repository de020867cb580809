"""What shows a run's metrics elsewhere: TensorBoard, Weights & Biases, MLflow."""

from cast_ray.runs.tracking.games import game_texts
from cast_ray.runs.tracking.tracker import TrackedRun
from cast_ray.runs.tracking.tracking import Tracking, check_trackers

__all__ = ["TrackedRun", "Tracking", "check_trackers", "game_texts"]
