"""``cast-ray eval``: Avg@k of a model on the held-out boards of one or more games."""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cast_ray.config import TrainConfig
from cast_ray.errors import ConfigError, ModelError, RunDirectoryError
from cast_ray.files import refusals_named
from cast_ray.games import get_game
from cast_ray.jobs import evaluate
from cast_ray.jobs.boards import make_boards, read_boards
from cast_ray.jobs.placement import reserved_cpus, wait_for_places
from cast_ray.jobs.ray_session import ray_session
from cast_ray.jobs.workers import Workers
from cast_ray.metrics import Success
from cast_ray.progress import TrainProgress
from cast_ray.puzzles import Puzzle
from cast_ray.run_directory import RunDirectory, write_table
from cast_ray.stored_directory import Place, below, has_file, is_whole
from cast_ray.stored_run import is_run, readable_copy

DEFAULT_TIER = "id"


@dataclass(frozen=True, slots=True, kw_only=True)
class GameTier:
    """One column of the result table."""

    game: str
    tier: str

    @classmethod
    def parse(cls, text: str) -> GameTier:
        """Read ``GAME`` or ``GAME:TIER``; without a tier it is ``id``, or the first there is.

        Raises:
            ConfigError: there is no such game or tier.
        """
        name, _, tier = text.partition(":")
        tiers = get_game(name).tiers
        tier = tier or (DEFAULT_TIER if DEFAULT_TIER in tiers else next(iter(tiers)))
        if tier not in tiers:
            raise ConfigError(f"{name} has the tiers {', '.join(tiers)}; got {tier!r}")
        return cls(game=name, tier=tier)

    def __str__(self) -> str:
        return f"{self.game}:{self.tier}"


def evaluate_model(
    model: Place,
    games: Sequence[GameTier],
    config: TrainConfig,
    *,
    attempts: int,
    limit: int,
    out: Path,
    progress: TrainProgress,
) -> dict[str, Success]:
    """Play held-out boards with a model and write trajectories, JSON and a Markdown table.

    Args:
        model: model directory, or run directory (its ``model/`` is taken), or the URI of one.
        games: what to play.
        config: engine, sampling and puzzle settings.
        attempts: episodes a board (Avg@k).
        limit: boards a game.
        out: directory of the results; must not exist yet.
        progress: shown to the user.

    Raises:
        ModelError, RunDirectoryError: the model is missing, or ``out`` would be overwritten.
    """
    model_dir = model_directory(model)
    if out.exists():
        raise RunDirectoryError(f"{out} exists already; give another --out")
    seen = seen_in_training(model)
    boards = {
        str(which): evaluation_boards(which, config, limit=limit, seen=seen) for which in games
    }
    with refusals_named(out):
        out.mkdir(parents=True)
    results: dict[str, Success] = {}
    with ray_session(num_cpus=reserved_cpus(config)):
        wait_for_places(config, say=progress.phase, with_learner=False)
        progress.phase("starting the engine")
        run_id = f"eval-{datetime.now(UTC).strftime('%H%M%S%f')}"
        workers = Workers.start(config, run_id=run_id, model_dir=model_dir)
        try:
            for name, puzzles in boards.items():
                progress.phase(f"playing {name}")
                table = workers.collector.play(
                    evaluate.episode_groups(
                        puzzles, attempts=attempts, step=0, seed=config.seed, purpose="evaluation"
                    ),
                    evaluate.evaluation_sampling(config),
                    timeout_s=config.rollout.timeout_s,
                    on_group=progress.rollout,
                )
                write_table(out / f"{name.replace(':', '-')}.parquet", table)
                results[name] = evaluate.success_of(table, seed=config.seed)
                progress.evaluation(name, results[name])
        finally:
            workers.close()
    _write_results(out, model, attempts, results)
    return results


def markdown_table(results: dict[str, Success], *, attempts: int) -> str:
    """Return the results as a table, in percent with 95% intervals over boards."""
    lines = [
        f"| game:tier | Avg@{attempts} | 95% interval | attempts |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {name} | {100 * result.success:.1f} | {100 * result.low:.1f} to "
        f"{100 * result.high:.1f} | {result.n} |"
        for name, result in results.items()
    ]
    return "\n".join(lines)


def evaluation_boards(
    which: GameTier, config: TrainConfig, *, limit: int, seen: Set[str]
) -> list[Puzzle]:
    """Return puzzles of a game and tier, none of them seen in training up to symmetry."""
    is_own = (which.game, which.tier) == (config.game, config.tier)
    settings = replace(
        config.puzzles,
        num_held_out=limit,
        num_train=1,
        file=config.puzzles.file if is_own else "",  # the file has the run's own tier alone
    )
    return make_boards(which.game, which.tier, settings, exclude=seen).held_out


def seen_in_training(model: Place) -> set[str]:
    """Return the ids of the puzzles that a run trained and validated on; none for a mere model."""
    if not is_run(model):
        return set()
    boards = read_boards(RunDirectory.existing(readable_copy(model, rooms=["puzzles"])).puzzles)
    return {puzzle.puzzle_id for puzzle in (*boards.train, *boards.validation)}


def model_directory(model: Place) -> Place:
    if is_run(model):
        trained = below(model, "model")
        if not is_whole(trained):
            raise ModelError(f"{model} has no trained model yet; finish it with cast-ray train")
        return trained
    if not has_file(model, "config.json"):
        raise ModelError(
            f"{model} is neither a model directory (config.json) nor a run directory (config.yaml)"
        )
    return model


def _write_results(out: Path, model: Place, attempts: int, results: dict[str, Success]) -> None:
    document = {
        "model": str(model),
        "attempts": attempts,
        "results": {name: asdict(result) for name, result in results.items()},
    }
    (out / "results.json").write_text(json.dumps(document, indent=2) + "\n")
    (out / "results.md").write_text(markdown_table(results, attempts=attempts) + "\n")
