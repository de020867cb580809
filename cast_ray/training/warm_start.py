"""The small policy before any reinforcement learning: built, then taught by imperfect play.

Which model a run starts from: a given one, or a small one built and warm-started on the spot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import ray
from ray.util.placement_group import PlacementGroup

from cast_ray.config.train import PolicyConfig, WarmStartConfig
from cast_ray.envs.text_env import TextEnv
from cast_ray.errors import ConfigError, LearnerError
from cast_ray.games import get_game
from cast_ray.games.puzzles import Puzzle
from cast_ray.learner.group import LearnerGroup
from cast_ray.learner.small_policy import build_small_policy, read_chat_pieces
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.demonstrations import demonstrate, to_demonstration_table
from cast_ray.runs.directories import make_partial, publish
from cast_ray.runs.remote_directories import PathOrUri, is_whole, localized, written_at
from cast_ray.runs.uris import is_uri
from cast_ray.seeds import derive_seed
from cast_ray.training.run import Run
from cast_ray.training.value_net.oracle import estimator_of
from cast_ray.training.workers import conversation_limit, start_learner
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry, has_solver
from solver_actors.solver import SolverEntry, careless_moves

_CORPUS_PUZZLES = 200
_WARM_UP_SHARE = 0.1
_FINAL_LR_SHARE = 0.1


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
    """Write the untrained small policy with a tokenizer for its game; return its parameters."""
    shape = asdict(policy)
    del shape["path"]
    return build_small_policy(
        directory,
        corpus=_corpus(game, turn_budget, puzzles[:_CORPUS_PUZZLES]),
        cells="".join(puzzle.board for puzzle in puzzles[:_CORPUS_PUZZLES]),
        max_position_embeddings=max_tokens,
        seed=derive_seed(seed, "initial model"),
        **shape,
    )


def check_answers_fit(puzzle: Puzzle, *, tokenizer: ChatTokenizer, max_answer_tokens: int) -> None:
    """Make sure that a policy has the tokens to name every action of a puzzle.

    Raises:
        ConfigError: an action takes more; every such answer would be cut off and earn nothing.
    """
    game = get_game(puzzle.game)
    actions = game.actions(game.decode(puzzle.board))
    lengths = {action: len(tokenizer.answer(f"```{action}```")) for action in actions}
    longest = max(lengths, key=lengths.__getitem__)
    if lengths[longest] > max_answer_tokens:
        raise ConfigError(
            f"rollout.max_answer_tokens must be >= {lengths[longest]} for {puzzle.game}, got "
            f"{max_answer_tokens}: so many tokens has the answer ```{longest}``` with its end"
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
    """Return the demonstrations of all steps in the order of training, the careless ones last.

    Args:
        puzzles: drawn from with replacement.
        config: how many, and how good.
        tokenizer: writes them as token ids.
        turn_budget: most turns of one.
        ends_dead: whether one ends in a deadlock, if the game has them, as episodes do.
        seed: of boards and mistakes.
        estimator: a value network, shown in the place of the exact solver; None = that.
    """
    rng = np.random.default_rng(derive_seed(seed, "demonstrations"))
    oracle = Oracle(max_bytes=2**28, estimator=estimator)
    game, entry = get_game(puzzles[0].game), estimator or get_solver_entry(puzzles[0].game)
    num_careful = (config.steps - config.careless_steps) * config.trajectories_per_step
    drawn = rng.integers(len(puzzles), size=config.steps * config.trajectories_per_step)
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
                # Careless play wins now and then; it would not with half of its moves in vain.
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
                tokenizer=tokenizer,
                rng=rng,
            )
        )
    return to_demonstration_table(talks)


def warm_start(
    learner: LearnerGroup,
    table: pa.Table,
    config: WarmStartConfig,
    *,
    max_skipped: int,
    on_step: Callable[[int, float], None],
) -> float:
    """Train on demonstrations for ``config.steps`` updates; return the last loss.

    Args:
        learner: takes the updates.
        table: ``DEMONSTRATION_SCHEMA``, what ``demonstrations`` returned.
        config: how many, how large, how fast.
        max_skipped: ``learner.max_skipped_updates``.
        on_step: is told step and loss.

    Raises:
        LearnerError: so many updates in a row were not finite.
    """
    reference = ray.put(table)
    loss, skipped = float("nan"), 0
    steps = np.arange(table.num_rows).reshape(config.steps, config.trajectories_per_step)
    for step, rows in enumerate(steps, start=1):
        lr = config.lr * _schedule(step, config.steps)
        stats = learner.supervised_update(reference, rows, lr=lr)
        loss = stats.loss
        on_step(step, loss)
        skipped = 0 if stats.is_applied else skipped + 1
        if skipped >= max_skipped:
            raise LearnerError(
                f"{skipped} updates of the warm start in a row had a loss or gradient that is not "
                f"finite, the last at step {step}: lower warm_start.lr ({config.lr})"
            )
    return loss


def _schedule(step: int, num_steps: int) -> float:
    """Return the share of the peak learning rate: linear up, then linear down to a tenth."""
    warm_up = max(1, round(num_steps * _WARM_UP_SHARE))
    if step <= warm_up:
        return step / warm_up
    done = (step - warm_up) / max(1, num_steps - warm_up)
    return 1.0 - done * (1.0 - _FINAL_LR_SHARE)


def _corpus(game: str, turn_budget: int, puzzles: list[Puzzle]) -> list[str]:
    """Return the texts whose frequent words become single tokens of the small tokenizer."""
    rules = get_game(game)
    # As often as the puzzles: every conversation holds them once, every turn its roles.
    texts = [rules.rules, "system\nuser\nassistant\n"] * len(puzzles)
    for puzzle in puzzles:
        state = rules.decode(puzzle.board)
        for answer in ("", *(f"```{action}```" for action in rules.actions(state))):
            env = TextEnv(rules, turn_budget=turn_budget)
            texts += [env.reset(state), answer, env.step(answer).message]
    return texts


def engine_model(run: Run) -> PathOrUri:
    """Return the model that engines and warm start begin with, built if need be.

    Raises:
        ConfigError: its tokenizer writes an action of the game in more tokens than an answer has.
    """
    path = run.config.policy.path
    model_dir = (path if is_uri(path) else Path(path)) if path else _initial_model(run)
    check_answers_fit(
        run.boards.train[0],
        tokenizer=_tokenizer(model_dir),
        max_answer_tokens=run.config.rollout.max_answer_tokens,
    )
    return model_dir


def _initial_model(run: Run) -> PathOrUri:
    """Return the untrained small policy of the run, built on first use."""
    config = run.config
    place = run.directory.place(run.directory.initial_model)
    if is_whole(place):
        return place
    turn_budget = get_game(config.game).tiers[config.tier].turn_budget
    run.progress.phase("building the small policy")
    with written_at(place) as here:
        unfinished = make_partial(here)
        build_initial_model(
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


def _tokenizer(model_dir: PathOrUri) -> ChatTokenizer:
    here = localized(model_dir, with_weights=False)
    return ChatTokenizer(here, read_chat_pieces(here))


def start_model(run: Run, engine_model: PathOrUri, ranks_place: PlacementGroup) -> PathOrUri:
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
    table = demonstrations(
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
        warm_start(
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
