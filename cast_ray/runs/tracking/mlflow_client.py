"""A run in MLflow: at the server of ``MLFLOW_TRACKING_URI``, else in the run directory's
``mlflow/``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunStatus

from cast_ray.config.reference import config_values
from cast_ray.runs.tracking.tracker import PROJECT, TrackedRun

_ID_TAG = "cast_ray.id"
_MOST_PARAMS = 100
"""Of one call."""
_LONGEST_PARAM = 6000


class Mlflow:
    """Uses the client alone: the page needs the whole of MLflow, in an environment of its own."""

    def __init__(self, run: TrackedRun) -> None:
        folder = run.directory / "mlflow"
        where, artifacts = os.environ.get("MLFLOW_TRACKING_URI"), None
        if not where:
            folder.mkdir(parents=True, exist_ok=True)
            # Its store of plain files is out of maintenance and refused.
            where = f"sqlite:///{folder.absolute()}/mlflow.db"
            artifacts = (folder / "artifacts").absolute().as_uri()
        self._client = MlflowClient(tracking_uri=where)
        experiment = self._experiment(artifacts)
        identity = run.identity()
        found = self._client.search_runs([experiment], f"tags.`{_ID_TAG}` = '{identity}'")
        if found:
            self._id = found[0].info.run_id
            self._client.update_run(self._id, status=RunStatus.to_string(RunStatus.RUNNING))
            return
        created = self._client.create_run(
            experiment, run_name=run.directory.name, tags={_ID_TAG: identity}
        )
        self._id = created.info.run_id
        params = [Param(key, value[:_LONGEST_PARAM]) for key, value in config_values(run.config)]
        for start in range(0, len(params), _MOST_PARAMS):
            self._client.log_batch(self._id, params=params[start : start + _MOST_PARAMS])

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        now = int(1000 * time.time())
        rows = [Metric(name, value, now, step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=rows)

    def games(self, step: int, texts: Sequence[str]) -> None:
        """See ``Tracker``."""
        self._client.log_text(self._id, "\n\n".join(texts), f"games/step-{step:05d}.txt")

    def close(self, summary: Mapping[str, Any], *, failed: bool) -> None:
        """See ``Tracker``."""
        if summary:
            self._client.log_dict(self._id, dict(summary), "summary.json")
        status = RunStatus.FAILED if failed else RunStatus.FINISHED
        self._client.set_terminated(self._id, RunStatus.to_string(status))

    def _experiment(self, artifacts: str | None) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return found.experiment_id
        return self._client.create_experiment(name, artifact_location=artifacts)
