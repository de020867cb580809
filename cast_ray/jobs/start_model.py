"""Which model a run starts from: a given one, or a small one built and warm-started on the spot."""

from __future__ import annotations

from pathlib import Path

from ray.util.placement_group import PlacementGroup

from cast_ray.chat import ChatTokenizer
from cast_ray.checkpoint import make_partial, publish
from cast_ray.games import get_game
from cast_ray.jobs import warm_start
from cast_ray.jobs.run import Run
from cast_ray.jobs.value_oracle import estimator_of
from cast_ray.jobs.workers import conversation_limit, start_learner
from cast_ray.small_policy import read_chat_pieces
from cast_ray.stored_directory import Place, is_whole, localized, written_at
from cast_ray.uris import is_uri
from solver_actors.solvers import has_solver


def engine_model(run: Run) -> Place:
    """Return the model that engines and warm start begin with, built if need be.

    Raises:
        ConfigError: its tokenizer writes an action of the game in more tokens than an answer has.
    """
    path = run.config.policy.path
    model_dir = (path if is_uri(path) else Path(path)) if path else _initial_model(run)
    warm_start.check_answers_fit(
        run.boards.train[0],
        tokenizer=_tokenizer(model_dir),
        max_answer_tokens=run.config.rollout.max_answer_tokens,
    )
    return model_dir


def _initial_model(run: Run) -> Place:
    """Return the untrained small policy of the run, built on first use."""
    config = run.config
    place = run.directory.place(run.directory.initial_model)
    if is_whole(place):
        return place
    turn_budget = get_game(config.game).tiers[config.tier].turn_budget
    run.progress.phase("building the small policy")
    with written_at(place) as here:
        unfinished = make_partial(here)
        warm_start.build_initial_model(
            unfinished,
            game=config.game,
            turn_budget=turn_budget,
            puzzles=run.boards.train,
            policy=config.policy,
            max_tokens=conversation_limit(config),
            seed=config.seed,
        )
        publish(unfinished, here)
    return place


def _tokenizer(model_dir: Place) -> ChatTokenizer:
    here = localized(model_dir, with_weights=False)
    return ChatTokenizer(here, read_chat_pieces(here))


def start_model(run: Run, engine_model: Place, ranks_place: PlacementGroup) -> Place:
    """Return the model that reinforcement learning starts from, warm-started if need be.

    Args:
        run: whose model.
        engine_model: what a warm start begins with.
        ranks_place: where the learner's ranks run.
    """
    config, directory, progress = run.config, run.directory, run.progress
    place = directory.place(directory.start_model)
    if is_whole(place):
        return place
    if config.warm_start.steps == 0:
        return engine_model
    progress.phase("writing demonstrations")
    table = warm_start.demonstrations(
        run.boards.train,
        config.warm_start,
        tokenizer=_tokenizer(engine_model),
        turn_budget=get_game(config.game).tiers[config.tier].turn_budget,
        ends_dead=config.rollout.deadlock_ends_episode,
        seed=config.seed,
        # Where there is an exact solver it demonstrates, so that runs with other oracles begin
        # with the same model.
        estimator=None if has_solver(config.game) else estimator_of(config, directory.value_net),
    )
    progress.phase("starting the learner for the warm start")
    learner = start_learner(config, model_dir=engine_model, place=ranks_place)
    try:
        warm_start.warm_start(
            learner,
            table,
            config.warm_start,
            max_skipped=config.learner.max_skipped_updates,
            on_step=lambda step, loss: progress.warm_start(step, config.warm_start.steps, loss),
        )
        learner.save_model(place)
    finally:
        learner.close()
    return place
