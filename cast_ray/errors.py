"""The exceptions that a user of cast_ray can encounter.

Every message is one sentence that says what is wrong, where, and what to do; the command line
prints it without a traceback and exits with 2. ``CastRayError`` is the root: catching it catches
all problems of input or environment, and no bug of ours.

    CastRayError
    ├── ConfigError            a configuration key or value
    ├── PuzzleError            a board, a puzzle file
    ├── ModelError             a model directory, a tokenizer, a chat template
    ├── RunDirectoryError      a run directory that is missing, not empty or of another run
    ├── NotStoredError         a request for something that no run directory has
    │   ├── RunUnknown         a run
    │   ├── ColumnUnknown      a metric
    │   ├── StepUnknown        a step's trajectories
    │   └── TrajectoryUnknown  one trajectory
    ├── StorageError           a store at a URI that is unreachable, refuses, or lacks the object
    ├── EnvironmentSetupError  the machine: versions, memory, ports, disk
    ├── RunInterrupted         a part of a run was lost; the same command with --resume continues
    ├── DamagedFileError       a stored table that is no longer as it was written
    ├── TrajectoryError        a stored trajectory or batch that contradicts itself
    ├── RemoteTimeout          a remote process did not answer in time
    ├── ActorLostError         a Ray actor died, or was lost with its node, too often
    ├── EngineError            vLLM failed, or gave an impossible answer
    ├── WeightSyncError        an engine does not hold the weights that were sent
    │   └── TransferBroken     a member of a broadcast is gone; the old weights stay in use
    ├── CallbackError          the user's own callback or function failed
    └── LearnerError           DeepSpeed failed, or an update is not finite
        └── LearnerLost        a rank died or hangs; a new group can resume from a checkpoint
"""


class CastRayError(Exception):
    """A problem of input or environment that the user can act on."""


class ConfigError(CastRayError):
    """A configuration key does not exist or its value is not allowed."""


class PuzzleError(CastRayError):
    """A board or a puzzle file is invalid; the message names row and column, from zero."""


class ModelError(CastRayError):
    """A model directory is missing, incomplete or unusable for conversations."""


class RunDirectoryError(CastRayError):
    """A run directory is missing, belongs to another configuration, or would be overwritten."""


class NotStoredError(CastRayError):
    """The run directories being browsed do not have what was requested."""

    code = "not_found"
    """A stable identifier for programs."""
    field = ""
    """The field of the request that names it."""


class RunUnknown(NotStoredError):
    """There is no run of that name below the root, or the name leads outside it."""

    code, field = "run_unknown", "run"


class ColumnUnknown(NotStoredError):
    """A run has no metric of that name."""

    code, field = "field_invalid", "columns"


class StepUnknown(NotStoredError):
    """A run has no trajectories of that step."""

    code, field = "step_unknown", "step"


class TrajectoryUnknown(NotStoredError):
    """A step has no trajectory of that group, episode and attempt."""

    code, field = "trajectory_unknown", "episode"


class StorageError(CastRayError):
    """A store at a URI cannot be reached, refuses, or lacks the object."""


class EnvironmentSetupError(CastRayError):
    """This machine lacks something that the job needs."""


class CallbackError(CastRayError):
    """A callback or function of the user failed; the message names its file and line."""


class RunInterrupted(CastRayError):
    """A part of an active run is lost for good; resuming restarts all parts and continues."""


class DamagedFileError(CastRayError):
    """A stored table cannot be read, or has changed since it was written."""


class TrajectoryError(CastRayError):
    """A trajectory, or a table of them, contradicts itself."""


class RemoteTimeout(CastRayError):
    """A remote process did not answer within its time-out; the message names both."""


class ActorLostError(CastRayError):
    """A Ray actor died, or was lost with its node, more often than it may be restarted."""


class EngineError(CastRayError):
    """The inference engine failed or gave an impossible answer."""


class WeightSyncError(CastRayError):
    """An engine does not have exactly the weights that were sent to it."""


class TransferBroken(WeightSyncError):
    """A broadcast of weights broke off before any were changed; it can be repeated."""


class LearnerError(CastRayError):
    """The learner failed, or an update would not be finite."""


class LearnerLost(LearnerError):
    """A rank died or does not answer; new ranks can resume from a checkpoint."""
