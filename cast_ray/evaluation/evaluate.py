"""``cast-ray eval``: plays held-out puzzles with several models, and writes all results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from cast_ray.config.train import TrainConfig
from cast_ray.errors import ConfigError
from cast_ray.evaluation.attempts import Attempt, read_attempts, write_attempts
from cast_ray.evaluation.build_attempts import attempts_of_trajectories
from cast_ray.evaluation.case_study import write_case_study
from cast_ray.evaluation.directory import EvaluationDirectory
from cast_ray.evaluation.endpoint.config import Patience, Prices
from cast_ray.evaluation.models import EvaluatedModel, Kind, model_directory, parse_models
from cast_ray.evaluation.tables import markdown_tables, results_document
from cast_ray.evaluation.tasks import (
    GameTier,
    evaluation_puzzles,
    given_puzzles,
    parse_games,
    seen_in_training,
)
from cast_ray.evaluation.with_players import play_with_player
from cast_ray.files import write_text
from cast_ray.games import get_game, hides_state
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.specs import episode_groups
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.uris import PathOrUri
from solver_actors.oracle import Oracle
from solver_actors.players import is_privileged
from solver_actors.scoring import Scorer

_ORACLE_BYTES = 2**30
_CASES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The models and puzzles of an evaluation."""

    models: tuple[EvaluatedModel, ...]
    games: tuple[GameTier, ...]
    attempts: int
    """Number at each puzzle (k of Avg@k)."""
    limit: int | None
    """Puzzles per game or benchmark and tier; None = 200 of a game, all of a benchmark or file."""
    patience: Patience
    """Retries and time-outs of endpoints."""
    prices: Prices
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Further parameters of every request to an endpoint. Any: JSON values."""
    puzzle_files: tuple[Path, ...] = ()
    """Exactly these boards are played, in their order; none = generated ones."""

    def __post_init__(self) -> None:
        if self.puzzle_files and len(self.games) != 1:
            raise ConfigError("--puzzles needs one game: give --games GAME or --games GAME:TIER")
        if self.extra_body and all(model.kind is not Kind.ENDPOINT for model in self.models):
            raise ConfigError("--extra-body is for models behind endpoints: give openai:NAME")


def evaluate(plan: Evaluation, *, out: Path, progress: TrainProgress) -> str:
    """Play what is missing, write all results, and return them as Markdown tables.

    Args:
        plan: what is evaluated.
        out: new directory, or one of the same evaluation, which is resumed.
        progress: shown to the user.

    Raises:
        CastRayError: invalid input, a directory of another evaluation, or a failure while playing;
            the same command then resumes.
    """
    puzzles = _puzzles(plan, progress)
    with EvaluationDirectory.open(out, _description(plan, puzzles)) as directory:
        if not directory.attempts.is_file():
            attempts = [
                attempt
                for number in range(len(plan.models))
                for attempt in _play(plan, number, puzzles, directory, progress)
            ]
            write_attempts(directory.attempts, attempts)
        return write_results(plan, directory)


def evaluate_models(
    models: str | Sequence[str],
    games: str,
    *,
    out: str | Path,
    attempts: int = 4,
    limit: int | None = None,
    overrides: Sequence[str] = (),
    puzzles: Sequence[str | Path] = (),
) -> dict[str, Any]:
    """Evaluate models on held-out puzzles, as ``cast-ray eval`` does.

    Args:
        models: run or model directories or URIs, ``openai:NAME``, or built-in players.
        games: ``GAME[:TIER],...``.
        out: directory of the results; an evaluation that was interrupted there is resumed.
        attempts: at each puzzle (Avg@k).
        limit: puzzles per game; None = 200, or all of ``puzzles``.
        overrides: configuration values as ``key=value``.
        puzzles: files or directories whose boards are played, all of them, in their order.

    Returns:
        What ``results.json`` holds: by model and game the share solved, its 95% interval, and more.

    Raises:
        CastRayError: invalid input, or a failure while playing; the same call then resumes.
    """
    named = [models] if isinstance(models, str) else list(models)
    plan = Evaluation(
        models=tuple(parse_models(named, overrides, labels=[])),
        games=tuple(parse_games(games)),
        attempts=attempts,
        limit=limit,
        patience=Patience(),
        prices=Prices(),
        puzzle_files=tuple(map(Path, puzzles)),
    )
    evaluate(plan, out=Path(out), progress=TrainProgress(Console(quiet=True)))
    return json.loads(EvaluationDirectory(Path(out)).results.read_text())


def write_results(plan: Evaluation, directory: EvaluationDirectory) -> str:
    """Write tables and pages of the stored attempts; return the tables."""
    attempts = read_attempts(directory.attempts)
    labels = [model.label for model in plan.models]
    seed = plan.models[0].configs[0].seed
    document = results_document(
        attempts, labels=labels, games=[str(which) for which in plan.games], seed=seed
    )
    document["sources"] = {model.label: list(model.sources) for model in plan.models}
    privileged = [
        model.label
        for model in plan.models
        if model.kind is Kind.PLAYER
        and any(is_privileged(model.name, which.game) for which in plan.games)
    ]
    document["privileged"] = privileged
    text = markdown_tables(document)
    if privileged:
        hiding = {
            which.game: get_game(which.game) for which in plan.games if hides_state(which.game)
        }
        where = " and ".join(
            f"in {game.title}, where it sees {game.wording.hidden}" for game in hiding.values()
        )
        text += f"\n\nPrivileged {where}: {', '.join(privileged)}."
    write_text(directory.results, json.dumps(document, indent=2) + "\n")
    write_text(directory.tables, text + "\n")
    if len(labels) > 1:
        first, second = (
            [attempt for attempt in attempts if attempt.model == label] for label in labels[:2]
        )
        write_case_study(directory.case_study, first, second, limit=_CASES)
    return text


def _play(
    plan: Evaluation,
    number: int,
    puzzles: Mapping[GameTier, list[Puzzle]],
    directory: EvaluationDirectory,
    progress: TrainProgress,
) -> list[Attempt]:
    model = plan.models[number]
    if model.kind is Kind.ENGINE:
        return _play_with_engines(plan, number, puzzles, directory, progress)
    found: list[Attempt] = []
    for which, chosen in puzzles.items():
        progress.phase(f"{model.label}: playing {which}")
        if model.kind is Kind.ENDPOINT:
            from cast_ray.evaluation.endpoint.episodes import play_with_endpoint  # openai

            found += play_with_endpoint(
                plan,
                model,
                chosen,
                journals=directory.journal(number, which.file_name),
                on_attempt=progress.rollout,
            )
            continue
        config = model.configs[0]
        found += play_with_player(
            model.name,
            chosen,
            label=model.label,
            turn_budget=which.turn_budget,
            attempts=plan.attempts,
            seed=config.seed,
            deadlock_ends_episode=config.rollout.deadlock_ends_episode,
            on_puzzle=progress.rollout,
        )
    return found


def _play_with_engines(
    plan: Evaluation,
    number: int,
    puzzles: Mapping[GameTier, list[Puzzle]],
    directory: EvaluationDirectory,
    progress: TrainProgress,
) -> list[Attempt]:
    from cast_ray.evaluation.with_engines import Play, play_with_engines  # Ray Serve

    model = plan.models[number]
    scorer = Scorer(Oracle(max_bytes=_ORACLE_BYTES))
    found: list[Attempt] = []
    for run, (location, config) in enumerate(zip(model.locations, model.configs, strict=True)):
        plays = [
            Play(
                which=which,
                groups=episode_groups(
                    chosen, attempts=plan.attempts, step=0, seed=config.seed, purpose="evaluation"
                ),
                folder=directory.groups(number, run, which.file_name),
            )
            for which, chosen in puzzles.items()
        ]
        label = model.label if len(model.sources) == 1 else f"{model.label}, run {run + 1}"
        tables = play_with_engines(location, plays, config, label=label, progress=progress)
        for table in tables.values():
            found += attempts_of_trajectories(table, scorer, model=model.label, run=run)
    return found


def _puzzles(plan: Evaluation, progress: TrainProgress) -> dict[GameTier, list[Puzzle]]:
    """Return the puzzles for all models; no model was trained on those that are not given."""
    trained = [model for model in plan.models if model.kind is Kind.ENGINE]
    seen = {
        puzzle for model in trained for at in model.locations for puzzle in seen_in_training(at)
    }
    if plan.puzzle_files:
        [which] = plan.games
        given = given_puzzles(which, plan.puzzle_files)[: plan.limit]
        num_seen = sum(puzzle.puzzle_id in seen for puzzle in given)
        if num_seen:
            progress.note(f"a model was trained on {num_seen} of these {len(given)} puzzles")
        return {which: given}
    config = (trained or plan.models)[0].configs[0]
    found = {
        which: evaluation_puzzles(which, config, limit=plan.limit, seen=seen)
        for which in plan.games
    }
    for which, puzzles in found.items():
        num_seen = sum(puzzle.puzzle_id in seen for puzzle in puzzles)
        if num_seen:  # one run's file may hold what another was trained on
            raise ConfigError(
                f"one of the models was trained on {num_seen} of the puzzles of {which}: evaluate "
                "the models one by one, or give puzzles.file= (empty) to generate puzzles"
            )
    return found


def _description(plan: Evaluation, puzzles: Mapping[GameTier, list[Puzzle]]) -> dict[str, Any]:
    """Return everything that determines the results."""
    return {
        "models": [
            {
                "label": model.label,
                "sources": list(model.sources),
                "weights": [_digest_of_weights(location) for location in model.locations]
                if model.kind is Kind.ENGINE
                else [],
                "values": [_values(config) for config in model.configs],
            }
            for model in plan.models
        ],
        "attempts": plan.attempts,
        "extra_body": plan.extra_body or None,  # like the key's absence in older directories
        "puzzles": {
            str(which): hashlib.sha256(
                " ".join(puzzle.puzzle_id + puzzle.board for puzzle in chosen).encode()
            ).hexdigest()[:16]
            for which, chosen in puzzles.items()
        },
        "num_puzzles": {str(which): len(chosen) for which, chosen in puzzles.items()},
    }


def _values(config: TrainConfig) -> dict[str, Any]:
    """Return the configuration values that affect a model's answers."""
    return {
        "seed": config.seed,
        "temperature": config.evaluation.temperature,
        "top_p": config.evaluation.top_p,
        "max_answer_tokens": config.rollout.max_answer_tokens,
        "prompt_tokens": config.rollout.prompt_tokens,
        "response_tokens": config.rollout.response_tokens,
        "max_model_len": config.engine.max_model_len,
        "chat_template": config.policy.chat_template,
        "truncated": config.rollout.truncated,
        "deadlock_ends_episode": config.rollout.deadlock_ends_episode,
        "dtype": config.engine.dtype,
    }


def _digest_of_weights(location: PathOrUri) -> str:
    """Return what identifies the weights of a local model; empty for one at a URI."""
    directory = model_directory(location)
    if not isinstance(directory, Path):
        return ""
    files = sorted(directory.glob("*.safetensors"))
    seen = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]
