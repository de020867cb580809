"""Built-in players on an evaluation's puzzles, one attempt after the other, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cast_ray.envs.environment import Environment, EnvironmentTurn
from cast_ray.envs.registry import make_environment
from cast_ray.evaluation.attempts import Attempt
from cast_ray.evaluation.build_attempts import AttemptName, judged
from cast_ray.games.puzzles import Puzzle
from cast_ray.games.text import FENCE
from cast_ray.rollout.chat_episode import ChatEpisode
from cast_ray.seeds import derive_seed
from solver_actors.oracle import Oracle
from solver_actors.players import Player
from solver_actors.registry import has_deadlocks
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
        name: of the player, as ``Player`` takes it.
        puzzles: of one game and tier.
        label: of the player in tables.
        turn_budget: turns an episode.
        attempts: at each puzzle.
        seed: of the evaluation.
        deadlock_ends_episode: whether an episode ends in a state that the solver proves lost.
        on_puzzle: is told how many puzzles are done, of how many.

    Raises:
        ConfigError: there is no such player, or it cannot play this.
    """
    oracle = Oracle(max_bytes=_ORACLE_BYTES)
    player, scorer = Player(name, oracle), Scorer(oracle)
    found: list[Attempt] = []
    for group, puzzle in enumerate(puzzles):
        player.check_plays(puzzle.game)
        is_dead = None
        if deadlock_ends_episode and has_deadlocks(puzzle.game):
            is_dead = oracle.solver(puzzle.game, puzzle.board).is_dead
        for attempt in range(attempts):
            environment = make_environment(puzzle, turn_budget=turn_budget, is_dead=is_dead)
            episode_seed = derive_seed(seed, "evaluation", 0, group, attempt)
            try:
                played = _play(player, puzzle.game, environment, seed=episode_seed)
            finally:
                environment.close()
            found.append(
                judged(
                    played,
                    scorer,
                    AttemptName(
                        model=label, run=0, puzzle=puzzle, group=group, attempt=attempt,
                        seed=episode_seed, turn_budget=turn_budget,
                    ),
                )
            )  # fmt: skip
        on_puzzle(group + 1, len(puzzles))
    return found


def _play(player: Player, game: str, environment: Environment, *, seed: int) -> ChatEpisode:
    started = time.perf_counter()
    environment.start()
    states = [environment.state()]
    answers: list[str] = []
    turns: list[EnvironmentTurn] = []
    while not turns or not turns[-1].end_reason:
        action = player.action(game, environment, seed=derive_seed(seed, "turn", len(turns)))
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
