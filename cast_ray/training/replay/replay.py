"""Replays every stored trajectory of a run from its rows alone and scores it with a new solver.

A replay changes nothing. It shows that boards, actions, rewards, costs and advantages follow from
the stored answers and that no row is missing. It cannot show that a policy gave these answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.envs.registry import tier_of
from cast_ray.errors import DamagedFileError, PuzzleError, TrajectoryError
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import read_chat_pieces, stored_chat_pieces
from cast_ray.rollout.specs import training_sampling, with_model_limit
from cast_ray.rollout.trajectory import SCORED_SCHEMA, ScoredTrajectory
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.replay.credit import credit_mismatches, replayed_columns
from cast_ray.training.replay.files import (
    Place,
    TrajectoryFile,
    place_of,
    read_trajectories,
    trajectory_files,
    wrong_row_counts,
)
from cast_ray.training.replay.row import (
    Mismatch,
    ReplayedEpisode,
    cost_mismatches,
    estimate_mismatches,
    game_mismatches,
    malformed,
    replay_episode,
    token_mismatches,
)
from cast_ray.training.replay.row_checks import IssuedGroups, teacher_mismatches, version_mismatches
from cast_ray.training.value_net.oracle import estimator_of
from solver_actors.oracle import Oracle
from solver_actors.registry import SolverEntry
from solver_actors.teacher import teacher_of

_SHOWN_DIFFERENCES = 40

Columns = dict[str, Any]
"""One row as Arrow returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One place where the stored run and its replay disagree."""

    file: str
    """Relative to the run directory."""
    step: int | None
    group: int | None
    episode: int | None
    turn: int | None
    what: str
    """A column, with the entry if that is not the turn; or ``row`` or ``file``."""
    stored: str
    replayed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """The result of a replay."""

    num_files: int
    num_trajectories: int
    num_turns: int
    tokenizer: str
    """Model directory of the tokenizer; empty = none was found and texts were not compared."""
    differences: tuple[Difference, ...]


def replay_run(run_dir: Path) -> ReplayReport:
    """Play every stored trajectory again and return every difference.

    Raises:
        RunDirectoryError: there is no run.
        ConfigError: its configuration cannot be read.
        ModelError: its tokenizer cannot be read.
        TrajectoryError: its metrics cannot be read.
        PuzzleError: its training puzzles cannot be read.
    """
    run = RunDirectory.existing(run_dir)
    config = load_config(run.config, [], is_stored=True)
    # What is not installed, or has changed, is named as such and not as a broken puzzle.
    tier_of(config.game, config.tier)
    tokenizer, model_dir = None, _model_dir(run)
    if model_dir is not None:
        config = with_model_limit(config, model_dir)
        pieces = stored_chat_pieces(run.path) or read_chat_pieces(model_dir)
        tokenizer = ChatTokenizer(model_dir, pieces)
    estimator = estimator_of(config, run.value_net)
    replay = _Replay(config, tokenizer, IssuedGroups(run, config), estimator, run.earlier_configs())
    num_files, num_trajectories, num_turns = 0, 0, 0
    differences: list[Difference] = []
    for file in trajectory_files(run, config):
        try:
            table = read_trajectories(file)
        except (DamagedFileError, TrajectoryError) as error:
            reason = str(error).removeprefix(f"{file.path} ")
            found = Mismatch.of(None, "file", reason, "a table of trajectories")
            differences.append(_difference(file, file.place, found))
            continue
        num_files += 1
        num_trajectories += table.num_rows
        num_turns += sum(map(len, table["effects"].to_pylist()))
        differences += replay.file_differences(file, table)
    return ReplayReport(
        num_files=num_files,
        num_trajectories=num_trajectories,
        num_turns=num_turns,
        tokenizer=str(model_dir or ""),
        differences=tuple(differences),
    )


def format_replay(report: ReplayReport) -> str:
    """Return the report as text, the first differences one a line."""
    tokens = (
        f"Texts and tokens were compared with the tokenizer of {report.tokenizer}."
        if report.tokenizer
        else "No tokenizer in the run directory: texts were not compared with their tokens."
    )
    lines = [
        f"{report.num_trajectories} trajectories with {report.num_turns} turns in "
        f"{report.num_files} files were replayed.",
        tokens,
    ]
    if not report.differences:
        return "\n".join([*lines, "No difference."])
    count = len(report.differences)
    lines.append("1 difference:" if count == 1 else f"{count} differences:")
    lines += [_line(difference) for difference in report.differences[:_SHOWN_DIFFERENCES]]
    left = count - _SHOWN_DIFFERENCES
    return "\n".join([*lines, f"  … and {left} more"] if left > 0 else lines)


def _line(difference: Difference) -> str:
    names = ("step", "group", "episode", "turn")
    place = [f"{n} {getattr(difference, n)}" for n in names if getattr(difference, n) is not None]
    return (
        f"  {', '.join([difference.file, *place])}: {difference.what}: "
        f"stored {difference.stored}, replayed {difference.replayed}"
    )


class _Replay:
    """Replays rows of one run, with one solver cache and one tokenizer for all of them."""

    def __init__(
        self,
        config: TrainConfig,
        tokenizer: ChatTokenizer | None,
        issued: IssuedGroups,
        estimator: SolverEntry | None,
        earlier: Mapping[int, TrainConfig],
    ) -> None:
        self._config = config
        self._earlier = earlier
        self._issued = issued
        self._oracle = Oracle(
            max_bytes=config.rollout.oracle_cache_mib * 2**20,
            estimator=estimator,
            expected=config.advantage.rescue if config.oracle == "expected" else "",
        )
        self._tokenizer = tokenizer

    def file_differences(self, file: TrajectoryFile, table: pa.Table) -> Iterator[Difference]:
        """Yield what differs in one file: which rows there are, each row, the whole step."""
        rows = table.to_pylist()
        counts = list(wrong_row_counts(file, rows))
        yield from (_difference(file, place, found) for place, found in counts)
        replayed: dict[int, Columns] = {}
        puzzles: dict[tuple[int, int], str] = {}
        for key, columns in enumerate(rows):
            puzzle = puzzles.setdefault((columns["step"], columns["group"]), columns["puzzle"])
            if columns["puzzle"] != puzzle:
                found = Mismatch.of(None, "puzzle", columns["puzzle"], f"{puzzle} as in its group")
                yield _difference(file, place_of(columns), found)
            mismatches, again = self._replay_row(file, columns)
            yield from (_difference(file, place_of(columns), found) for found in mismatches)
            if again is not None:
                replayed[key] = again
        if file.step is None:
            return
        keys = list(replayed)
        for position, found in credit_mismatches(
            table.take(pa.array(keys, pa.int64())),
            list(replayed.values()),
            next((c for last, c in self._earlier.items() if file.step <= last), self._config),
            step=file.step,
            group_size=file.group_size,
            is_complete=not counts and len(keys) == len(rows),
        ):
            place = file.place if position is None else place_of(rows[keys[position]])
            yield _difference(file, place, found)

    def _replay_row(
        self, file: TrajectoryFile, columns: Columns
    ) -> tuple[list[Mismatch], Columns | None]:
        """Return what differs in one row and, if it is well-formed, its replayed columns."""
        broken = [*malformed(columns), *self._setting_mismatches(columns)]
        if broken:
            return broken, None
        row = ScoredTrajectory(**{name: columns[name] for name in SCORED_SCHEMA.names})
        try:
            replayed = self._replay_episode(row)
        except PuzzleError as error:
            return [Mismatch.of(None, "puzzle", row.puzzle, error)], None
        exact = estimates = np.full(len(replayed.states), np.nan)
        if self._config.oracle == "turn_reward":
            estimates = -np.array(replayed.rewards)
        elif self._config.oracle == "value_net":
            estimates = self._oracle.cost_to_go(row.game, list(replayed.states))
        elif self._config.oracle in ("exact", "expected"):
            exact = self._oracle.cost_to_go(row.game, list(replayed.states))
        if self._config.oracle == "expected":
            estimates = self._oracle.expectations(
                row.game, replayed.states, replayed.actions, replayed.effects
            )
        found = [
            *game_mismatches(row, replayed),
            *cost_mismatches(row, exact),
            *estimate_mismatches(row, estimates),
            *token_mismatches(row, replayed, self._tokenizer),
            *version_mismatches(row),
            *teacher_mismatches(
                row,
                replayed,
                estimates if self._config.oracle == "value_net" else exact,
                teacher=teacher_of(self._config),
                oracle=self._oracle,
            ),
        ]
        if file.step is not None:
            found += self._issued.mismatches(columns)
        return found, replayed_columns(columns, replayed, exact, estimates)

    def _replay_episode(self, row: ScoredTrajectory) -> ReplayedEpisode:
        rollout, sampling = self._config.rollout, training_sampling(self._config)
        prover = None
        if rollout.deadlock_ends_episode and self._config.resources.oracle_actors:
            prover = self._oracle.prover(row.game, row.puzzle)
        return replay_episode(
            row,
            is_dead=None if prover is None else prover.is_dead,
            tokenizer=self._tokenizer,
            response_tokens=sampling.response_tokens_after(row.turn_starts[0]),
            truncated=rollout.truncated,
        )

    def _setting_mismatches(self, columns: Columns) -> Iterator[Mismatch]:
        """Yield what a row says of game, tier and budget that the configuration does not."""
        game, tier = self._config.game, self._config.tier
        turn_budget = tier_of(game, tier).turn_budget
        for name, value in (("game", game), ("tier", tier), ("turn_budget", turn_budget)):
            if columns[name] != value:
                yield Mismatch.of(None, name, columns[name], value)


def _model_dir(run: RunDirectory) -> Path | None:
    places = (run.start_model, run.model, run.initial_model)
    return next((place for place in places if (place / "tokenizer.json").is_file()), None)


def _difference(file: TrajectoryFile, place: Place, found: Mismatch) -> Difference:
    name = "/".join(file.path.parts[-2:])  # below the run directory
    return Difference(file=name, **place._asdict(), **asdict(found))
