"""The exceptions a user of cast_ray can meet, and nothing else.

Every message is one sentence that says what is wrong, where, and what to do; the command line
prints it without a traceback and exits with 2. ``CastRayError`` is the root: catching it catches
everything that is somebody's input or surroundings, and no bug of ours.

    CastRayError
    ├── ConfigError            a configuration key or value
    ├── PuzzleError            a board, a puzzle file
    ├── ModelError             a model directory, a tokenizer, a chat template
    ├── RunDirectoryError      a run directory that is missing, foreign or not empty
    ├── NotStoredError         asked for something that no run directory holds
    │   ├── RunUnknown         … a run
    │   ├── ColumnUnknown      … a metric
    │   ├── StepUnknown        … a step's trajectories
    │   └── TrajectoryUnknown  … one of them
    ├── StorageError           a store at a URI: no way to it, no right to it, nothing there
    ├── EnvironmentSetupError  the machine: versions, memory, ports, disk
    ├── RunInterrupted         a part of a run was lost; the same command with --resume goes on
    ├── TrajectoryError        a stored trajectory or batch that contradicts itself
    ├── RemoteTimeout          a remote part that did not answer in time
    ├── ActorLostError         a Ray actor died, or was lost with its node, too often
    ├── EngineError            vLLM failed, or answered something impossible
    ├── WeightSyncError        an engine does not hold the weights that were sent
    │   └── TransferBroken     a member of a broadcast is away; the old weights go on
    └── LearnerError           DeepSpeed failed, or an update is not finite
        └── LearnerLost        a rank died, or hangs; a new group can go on from a checkpoint
"""


class CastRayError(Exception):
    """Anything wrong with input or surroundings that the user can act on."""


class ConfigError(CastRayError):
    """A configuration key does not exist or its value is not allowed."""


class PuzzleError(CastRayError):
    """A board or a puzzle file is broken; the message names row and column, from zero."""


class ModelError(CastRayError):
    """A model directory is missing, incomplete or unusable for a conversation."""


class RunDirectoryError(CastRayError):
    """A run directory is missing, belongs to another configuration, or would be overwritten."""


class NotStoredError(CastRayError):
    """Somebody asked for something that is not in the run directories being browsed."""

    code = "not_found"
    """Stable, for programs."""
    field = ""
    """The part of the question that names it."""


class RunUnknown(NotStoredError):
    """There is no run of that name below the root, or the name leads out of it."""

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
    """A store at a URI cannot be reached, refuses, or does not hold what was asked for."""


class EnvironmentSetupError(CastRayError):
    """This machine lacks something that the job needs."""


class RunInterrupted(CastRayError):
    """A part of a running run was lost for good; resuming starts all parts anew and goes on."""


class TrajectoryError(CastRayError):
    """A trajectory, or a table of them, contradicts itself."""


class RemoteTimeout(CastRayError):
    """A remote part did not answer within its time-out; the message names both."""


class ActorLostError(CastRayError):
    """A Ray actor died, or was lost with its node, more often than it may be restarted."""


class EngineError(CastRayError):
    """The inference engine failed or gave an answer that cannot be right."""


class WeightSyncError(CastRayError):
    """An engine does not hold exactly the weights that were sent to it."""


class TransferBroken(WeightSyncError):
    """A broadcast of weights broke off before any were changed; another try can end well."""


class LearnerError(CastRayError):
    """The learner failed, or an update would not be finite."""


class LearnerLost(LearnerError):
    """A rank died or does not answer; new ranks can go on from a checkpoint."""
