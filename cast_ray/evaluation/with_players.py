"""Built-in players on the puzzles of an evaluation, one attempt at a time, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from cast_ray.envs.environment import Environment, EnvironmentTurn
from cast_ray.evaluation.attempts import Attempt
from cast_ray.evaluation.build_attempts import scored_attempt
from cast_ray.evaluation.tasks import environment_of
from cast_ray.games.puzzles import Puzzle
from cast_ray.games.text import FENCE
from cast_ray.rollout.chat_episode import ChatEpisode
from cast_ray.rollout.episode import EpisodeSpec
from cast_ray.rollout.specs import episode_groups
from cast_ray.seeds import derive_seed
from solver_actors.oracle import Oracle
from solver_actors.players import Player
from solver_actors.scoring import Scorer

_ORACLE_BYTES = 2**30


def play_with_player(
    name: str,
    puzzles: Sequence[Puzzle],
    *,
    label: str,
    turn_budget: int,
    attempts: int,
    seed: int,
    deadlock_ends_episode: bool,
    on_puzzle: Callable[[int, int], None],
) -> list[Attempt]:
    """Return a player's attempts, ordered by puzzle and attempt; equal seeds, equal attempts.

    Args:
        name: the player, as ``Player`` takes it.
        puzzles: of one game and tier.
        label: the player's name in tables.
        turn_budget: turns per episode.
        attempts: number at each puzzle.
        seed: the evaluation's.
        deadlock_ends_episode: whether a state that the solver proves lost ends the episode.
        on_puzzle: called with ``(done, total)`` after each puzzle.

    Raises:
        ConfigError: there is no such player, or it cannot play this game.
    """
    oracle = Oracle(max_bytes=_ORACLE_BYTES)
    player, scorer = Player(name, oracle), Scorer(oracle)
    groups = episode_groups(puzzles, attempts=attempts, step=0, seed=seed, purpose="evaluation")
    found: list[Attempt] = []
    for num_done, group in enumerate(groups, start=1):
        player.check_plays(group[0].puzzle.game)
        for spec in group:
            spec = replace(spec, turn_budget=turn_budget)
            environment = environment_of(spec, oracle, deadlock_ends_episode=deadlock_ends_episode)
            try:
                played = _play(player, spec, environment)
            finally:
                environment.close()
            found.append(scored_attempt(played, spec, scorer, model=label))
        on_puzzle(num_done, len(puzzles))
    return found


def _play(player: Player, spec: EpisodeSpec, environment: Environment) -> ChatEpisode:
    started = time.perf_counter()
    environment.start()
    states = [environment.state()]
    answers: list[str] = []
    turns: list[EnvironmentTurn] = []
    while not turns or not turns[-1].end_reason:
        turn_seed = derive_seed(spec.seed, "turn", len(turns))
        action = player.action(spec.puzzle.game, environment, seed=turn_seed)
        answers.append(f"{FENCE}{action}{FENCE}")
        turns.append(environment.step(answers[-1]))
        states.append(turns[-1].state)
    return ChatEpisode(
        answers=tuple(answers),
        actions=tuple(turn.action for turn in turns),
        effects=tuple(turn.effect.value for turn in turns),
        states=tuple(states),
        reward=turns[-1].reward,
        end_reason=turns[-1].end_reason,
        answer_tokens=(None,) * len(turns),
        prompt_tokens=(None,) * len(turns),
        num_retries=0,
        num_from_journal=0,
        seconds=time.perf_counter() - started,
    )
