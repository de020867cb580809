"""Which model a run starts from: a given one, or a small one built and warm-started on the spot."""

from __future__ import annotations

from pathlib import Path

from ray.util.placement_group import PlacementGroup

from cast_ray.chat import ChatTokenizer
from cast_ray.checkpoint import make_partial, publish
from cast_ray.games import get_game
from cast_ray.jobs import warm_start
from cast_ray.jobs.run import Run
from cast_ray.jobs.workers import conversation_limit, start_learner
from cast_ray.small_policy import read_chat_pieces


def engine_model(run: Run) -> Path:
    """Return the model directory that engines and warm start begin with, built if need be.

    Raises:
        ConfigError: its tokenizer writes an action of the game in more tokens than an answer has.
    """
    model_dir = Path(run.config.policy.path) if run.config.policy.path else _initial_model(run)
    warm_start.check_answers_fit(
        run.boards.train[0],
        tokenizer=ChatTokenizer(model_dir, read_chat_pieces(model_dir)),
        max_answer_tokens=run.config.rollout.max_answer_tokens,
    )
    return model_dir


def _initial_model(run: Run) -> Path:
    """Return the untrained small policy of the run, built on first use."""
    config, directory = run.config, run.directory
    if not directory.initial_model.is_dir():
        turn_budget = get_game(config.game).tiers[config.tier].turn_budget
        run.progress.phase("building the small policy")
        unfinished = make_partial(directory.initial_model)
        warm_start.build_initial_model(
            unfinished,
            game=config.game,
            turn_budget=turn_budget,
            puzzles=run.boards.train,
            policy=config.policy,
            max_tokens=conversation_limit(config),
            seed=config.seed,
        )
        publish(unfinished, directory.initial_model)
    return directory.initial_model


def start_model(run: Run, engine_model: Path, place: PlacementGroup) -> Path:
    """Return the model that reinforcement learning starts from, warm-started if need be.

    Args:
        run: whose model.
        engine_model: what a warm start begins with.
        place: of the learner's ranks.
    """
    config, directory, progress = run.config, run.directory, run.progress
    if directory.start_model.is_dir():
        return directory.start_model
    if config.warm_start.steps == 0:
        return engine_model
    progress.phase("writing demonstrations")
    table = warm_start.demonstrations(
        run.boards.train,
        config.warm_start,
        tokenizer=ChatTokenizer(engine_model, read_chat_pieces(engine_model)),
        turn_budget=get_game(config.game).tiers[config.tier].turn_budget,
        ends_dead=config.rollout.deadlock_ends_episode,
        seed=config.seed,
    )
    progress.phase("starting the learner for the warm start")
    learner = start_learner(config, model_dir=engine_model, place=place)
    try:
        warm_start.warm_start(
            learner,
            table,
            config.warm_start,
            max_skipped=config.learner.max_skipped_updates,
            on_step=lambda step, loss: progress.warm_start(step, config.warm_start.steps, loss),
        )
        learner.save_model(directory.start_model)
    finally:
        learner.close()
    return directory.start_model
