"""The model that a run starts from: a given one, or a small one that is built and warm-started."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import ray
from ray.util.placement_group import PlacementGroup

from cast_ray.config.train import PolicyConfig, TrainConfig, WarmStartConfig
from cast_ray.envs.registry import is_benchmark, make_environment, tier_of
from cast_ray.envs.text_env import TextEnv
from cast_ray.errors import ConfigError, LearnerError
from cast_ray.games import get_game
from cast_ray.games.puzzles import Puzzle
from cast_ray.learner.group import LearnerGroup
from cast_ray.learner.small_policy import build_small_policy
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.demonstrations import (
    demonstrate,
    demonstrate_choices,
    demonstrated_answer,
    to_demonstration_table,
)
from cast_ray.rollout.specs import conversation_limit
from cast_ray.runs.directories import make_partial, publish
from cast_ray.runs.remote_directories import delete_directory, is_whole, localized, written_at
from cast_ray.runs.uris import PathOrUri, path_or_uri
from cast_ray.seeds import derive_seed
from cast_ray.training.run import Run
from cast_ray.training.value_net.oracle import estimator_of
from cast_ray.training.workers import start_learner
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry, has_solver
from solver_actors.solver import SolverEntry, careless_moves

_CORPUS_PUZZLES = 200
_WARM_UP_SHARE = 0.1
_FINAL_LR_SHARE = 0.1
_SAVE_EVERY_S = 300.0


def build_initial_model(
    directory: Path,
    *,
    game: str,
    turn_budget: int,
    puzzles: list[Puzzle],
    policy: PolicyConfig,
    max_tokens: int,
    seed: int,
) -> int:
    """Write the untrained small policy and its tokenizer; return the number of parameters."""
    return build_small_policy(
        directory,
        policy,
        corpus=_corpus(game, turn_budget, puzzles[:_CORPUS_PUZZLES]),
        cells="" if is_benchmark(game) else "".join(p.board for p in puzzles[:_CORPUS_PUZZLES]),
        max_position_embeddings=max_tokens,
        seed=derive_seed(seed, "initial model"),
    )


def check_answers_fit(
    puzzle: Puzzle, *, tokenizer: ChatTokenizer, max_answer_tokens: int, with_thoughts: bool = False
) -> None:
    """Check that ``rollout.max_answer_tokens`` is enough for every action of a puzzle.

    Raises:
        ConfigError: an action needs more, so every such answer would be truncated; or the game has
            no thoughts and they are wanted.
    """
    game = get_game(puzzle.game)
    state = game.decode(puzzle.board)
    if with_thoughts and not game.thought(state):
        raise ConfigError(
            f"warm_start.thoughts is for games that have some, and {puzzle.game} has none: set it "
            "to false"
        )
    answers = [
        demonstrated_answer(game, state, action, with_thoughts=with_thoughts)
        for action in game.actions(state)
    ]
    longest = max(answers, key=lambda answer: len(tokenizer.answer(answer)))
    needed = len(tokenizer.answer(longest))
    if needed > max_answer_tokens:
        raise ConfigError(
            f"rollout.max_answer_tokens must be >= {needed} for {puzzle.game}, got "
            f"{max_answer_tokens}: the answer {longest!r} has that many, with its end"
        )


def demonstrations(
    puzzles: list[Puzzle],
    config: WarmStartConfig,
    *,
    tokenizer: ChatTokenizer,
    turn_budget: int,
    ends_dead: bool,
    seed: int,
    estimator: SolverEntry | None = None,
) -> pa.Table:
    """Return the demonstrations of all steps in training order, careless ones last.

    Those of a benchmark or an environment choose at random.

    Args:
        puzzles: sampled with replacement.
        config: their number and quality.
        tokenizer: encodes them.
        turn_budget: most turns of each.
        ends_dead: whether they end at a deadlock like episodes do, if the game has deadlocks.
        seed: of boards and mistakes.
        estimator: a value network that demonstrates instead of the exact solver.
    """
    rng = np.random.default_rng(derive_seed(seed, "demonstrations"))
    drawn = rng.integers(len(puzzles), size=config.steps * config.trajectories_per_step)
    if is_benchmark(puzzles[0].game):
        return to_demonstration_table(
            [
                demonstrate_choices(
                    make_environment(puzzles[index], turn_budget=turn_budget),
                    tokenizer=tokenizer,
                    rng=rng,
                )
                for index in drawn
            ]
        )
    oracle = Oracle(max_bytes=2**28, estimator=estimator)
    game, entry = get_game(puzzles[0].game), estimator or get_solver_entry(puzzles[0].game)
    num_careful = (config.steps - config.careless_steps) * config.trajectories_per_step
    talks = []
    for row, index in enumerate(drawn):
        is_careful = row < num_careful
        puzzle = puzzles[index]
        solver = oracle.solver(puzzle.game, puzzle.board)
        talks.append(
            demonstrate(
                puzzle,
                game=game,
                good_actions=partial(entry.demonstrated, solver),
                # Careless play should win sometimes; with half of its moves wasted it never would.
                mistakes=partial(
                    entry.demonstrated_mistakes if is_careful else careless_moves, game
                ),
                is_dead=solver.is_dead if ends_dead and entry.has_deadlocks else None,
                turn_budget=turn_budget,
                mistake_probability=(
                    config.mistake_probability
                    if is_careful
                    else config.careless_mistake_probability
                ),
                with_thoughts=config.thoughts,
                tokenizer=tokenizer,
                rng=rng,
            )
        )
    return to_demonstration_table(talks)


def warm_start(
    learner: LearnerGroup,
    table: pa.Table,
    config: TrainConfig,
    *,
    checkpoint: PathOrUri,
    on_step: Callable[[int, float], None],
) -> None:
    """Train on demonstrations: all updates of the warm start, or those that a checkpoint lacks.

    Args:
        learner: takes the updates.
        table: ``DEMONSTRATION_SCHEMA``, from ``demonstrations``.
        config: of the run.
        checkpoint: directory of the learner's state, written every five minutes.
        on_step: called with step and loss.

    Raises:
        LearnerError: ``learner.max_skipped_updates`` updates in a row were not finite.
        RunDirectoryError: the checkpoint is damaged.
    """
    reference = ray.put(table)
    done = learner.load_checkpoint(checkpoint)["step"] if is_whole(checkpoint) else 0
    plan, skipped, saved_at = config.warm_start, 0, time.monotonic()
    steps = np.arange(table.num_rows).reshape(plan.steps, plan.trajectories_per_step)
    for step, rows in enumerate(steps[done:], start=done + 1):
        lr = plan.lr * _schedule(step, plan.steps)
        stats = learner.supervised_update(reference, rows, lr=lr)
        on_step(step, stats.loss)
        skipped = 0 if stats.is_applied else skipped + 1
        if skipped >= config.learner.max_skipped_updates:
            raise LearnerError(
                f"{skipped} updates of the warm start in a row had a loss or gradient that is not "
                f"finite, the last at step {step}: lower warm_start.lr ({plan.lr})"
            )
        if time.monotonic() - saved_at >= _SAVE_EVERY_S:
            learner.save_checkpoint(checkpoint, {"step": step})
            saved_at = time.monotonic()


def _schedule(step: int, num_steps: int) -> float:
    """Return the share of the peak learning rate: linear up, then linear down to a tenth."""
    warm_up = max(1, round(num_steps * _WARM_UP_SHARE))
    if step <= warm_up:
        return step / warm_up
    done = (step - warm_up) / max(1, num_steps - warm_up)
    return 1.0 - done * (1.0 - _FINAL_LR_SHARE)


def _corpus(game: str, turn_budget: int, puzzles: list[Puzzle]) -> list[str]:
    """Return texts whose frequent words become single tokens of the small tokenizer."""
    if is_benchmark(game):
        return _task_texts(turn_budget, puzzles)
    rules = get_game(game)
    # Once per puzzle, because every conversation contains the rules and every turn the roles.
    texts = [rules.rules, "system\nuser\nassistant\n"] * len(puzzles)
    for puzzle in puzzles:
        state = rules.decode(puzzle.board)
        for answer in ("", *(f"```{action}```" for action in rules.actions(state))):
            env = TextEnv(rules, state, turn_budget=turn_budget)
            texts += [env.start(), answer, env.step(answer).message]
    return texts


def _task_texts(turn_budget: int, puzzles: list[Puzzle]) -> list[str]:
    """Return what a benchmark or an environment says at the beginning of some tasks."""
    texts = []
    for puzzle in puzzles:
        with closing(make_environment(puzzle, turn_budget=turn_budget)) as environment:
            texts += [environment.start(), environment.rules, "system\nuser\nassistant\n"]
    return texts


def engine_model(run: Run) -> PathOrUri:
    """Return the model that engines and warm start load first; build it if needed.

    Raises:
        ConfigError: an action has more tokens than ``rollout.max_answer_tokens``.
    """
    path = run.config.policy.path
    model_dir = path_or_uri(path) if path else _initial_model(run)
    if not is_benchmark(run.config.game):  # whose answers are free
        check_answers_fit(
            run.boards.train[0],
            tokenizer=_tokenizer(run, model_dir),
            max_answer_tokens=run.config.rollout.max_answer_tokens,
            with_thoughts=run.config.warm_start.steps > 0 and run.config.warm_start.thoughts,
        )
    return model_dir


def _initial_model(run: Run) -> PathOrUri:
    """Return the run's untrained small policy; build it on first use."""
    config = run.config
    location = run.directory.location(run.directory.initial_model)
    if is_whole(location):
        return location
    run.progress.phase("building the small policy")
    with written_at(location) as here:
        unfinished = make_partial(here)
        build_initial_model(
            unfinished,
            game=config.game,
            turn_budget=tier_of(config.game, config.tier).turn_budget,
            puzzles=run.boards.train,
            policy=config.policy,
            max_tokens=conversation_limit(config),
            seed=config.seed,
        )
        publish(unfinished, here)
    return location


def _tokenizer(run: Run, model_dir: PathOrUri) -> ChatTokenizer:
    return ChatTokenizer(localized(model_dir, with_weights=False), run.chat_pieces(model_dir))


def start_model(
    run: Run, engine_model: PathOrUri, learner_reservation: PlacementGroup
) -> PathOrUri:
    """Return the model that reinforcement learning starts from; warm-start it if configured.

    Args:
        run: of the model.
        engine_model: the model that a warm start begins with.
        learner_reservation: where the learner's ranks run.
    """
    config, directory, progress = run.config, run.directory, run.progress
    location = directory.location(directory.start_model)
    if is_whole(location):
        return location
    if config.warm_start.steps == 0:
        return engine_model
    progress.phase("writing demonstrations")
    table = demonstrations(
        run.boards.train,
        config.warm_start,
        tokenizer=_tokenizer(run, engine_model),
        turn_budget=tier_of(config.game, config.tier).turn_budget,
        ends_dead=config.rollout.deadlock_ends_episode,
        seed=config.seed,
        # An exact solver demonstrates even if the oracle is another, so that runs with different
        # oracles start from the same model.
        estimator=None if has_solver(config.game) else estimator_of(config, directory.value_net),
    )
    unfinished = directory.location(directory.warm_start)
    progress.phase("starting the learner for the warm start")
    learner = start_learner(
        config,
        model_dir=engine_model,
        pieces=run.chat_pieces(engine_model),
        reserved=learner_reservation,
    )
    with closing(learner):
        warm_start(
            learner,
            table,
            config,
            checkpoint=unfinished,
            on_step=lambda step, loss: progress.warm_start(step, config.warm_start.steps, loss),
        )
        learner.save_model(location)
    delete_directory(unfinished)
    return location
