"""Replays one stored trajectory: plays its answers again and rebuilds its tokens.

Letters as in ``cast_ray.rollout.trajectory``. Entry ``i`` of a ``[T + 1]`` column is reported at
turn ``i - 1``, which led to it; the first entry has no turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from cast_ray.envs.environment import Environment
from cast_ray.envs.registry import is_benchmark, make_environment
from cast_ray.games import get_game
from cast_ray.games.costs import EXACT, INFINITE, UNKNOWN, status_of, stored_cost
from cast_ray.games.game import Effect
from cast_ray.games.puzzles import Puzzle, puzzle_id_of
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.trajectory import ScoredTrajectory
from cast_ray.seeds import derive_seed

_PER_TURN = (
    "turn_starts", "turn_ends", "turn_seeds", "answers", "actions", "effects",
    "teacher_logprobs", "teacher_actions",
    "shifted_advantages", "solver_advantages", "step_advantages", "turn_advantages",
)  # fmt: skip
_PER_STATE = ("states", "cost_to_go", "cost_status", "cost_estimates")
_PER_TOKEN = ("loss_mask", "rollout_logprobs", "weight_versions", "token_advantages")
_MAY_BE_NULL = (
    "cost_to_go", "cost_estimates", "teacher_logprobs", "shifted_advantages", "solver_advantages",
)  # fmt: skip
_SAME_ESTIMATE = 1e-4
"""Absolute; a network's value of a board differs between batches by rounding (about 1e-6)."""
_SHOWN_CHARACTERS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One value of a row that differs from the replay."""

    turn: int | None
    what: str
    """The column, and the entry if it has one more than there are turns."""
    stored: str
    replayed: str

    @classmethod
    def of(cls, turn: int | None, what: str, stored: object, replayed: object) -> Mismatch:
        """Return a mismatch of any two values."""
        return cls(turn=turn, what=what, stored=_shown(stored), replayed=_shown(replayed))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedEpisode:
    """The result of the stored answers; it has fewer turns than the row if it ends earlier."""

    actions: tuple[str, ...]
    effects: tuple[str, ...]
    states: tuple[str, ...]
    """``[T + 1]``."""
    messages: tuple[str, ...]
    """``[T + 1]`` user messages: the first, then the one after each turn; empty at the end."""
    rules: str
    """The system prompt."""
    rewards: tuple[float, ...]
    """``[T + 1]`` of the episode, before and after each turn."""
    end_reason: str
    """Empty if the answers run out before the episode ends."""

    @property
    def reward(self) -> float:
        """Return the episode's reward, as precise as it is stored."""
        return float(np.float32(self.rewards[-1]))


def malformed(row: dict[str, Any]) -> Iterator[Mismatch]:
    """Yield where a row (Any: as Arrow returns it) contradicts itself, before it is replayed."""
    if None in row.values():
        yield Mismatch.of(None, next(name for name in row if row[name] is None), "null", "a value")
        return
    num_turns, num_tokens = len(row["effects"]), len(row["token_ids"])
    sizes = dict.fromkeys(_PER_TURN, num_turns) | dict.fromkeys(_PER_STATE, num_turns + 1)
    for name, size in (sizes | dict.fromkeys(_PER_TOKEN, num_tokens)).items():
        values = row.get(name, [0] * size)  # an evaluation has no advantages
        if len(values) != size:
            yield Mismatch.of(None, name, f"{len(values)} entries", f"{size} entries")
        if name not in _MAY_BE_NULL and None in values:
            yield Mismatch.of(None, f"{name}[{values.index(None)}]", "null", "a value")
    if num_turns == 0 or None in row["token_ids"]:
        yield Mismatch.of(None, "token_ids", "no turn, or null", "at least one turn")
    spans = zip(row["turn_starts"], row["turn_ends"], strict=False)
    bounds = [bound for span in spans for bound in span if bound is not None]
    if bounds != sorted(bounds) or any(not 0 < bound <= num_tokens for bound in bounds):
        yield Mismatch.of(None, "turn_starts, turn_ends", bounds, f"ascending, 1 to {num_tokens}")
    for index, (cost, status) in enumerate(
        zip(row["cost_to_go"], row["cost_status"], strict=False)
    ):
        is_number = cost is not None and cost >= 0
        if status not in (EXACT, INFINITE, UNKNOWN) or (status == EXACT) != is_number:
            yield Mismatch.of(_led_by(index), f"cost_to_go[{index}]", f"{status} {cost}", "a cost")


def replay_episode(
    row: ScoredTrajectory,
    *,
    is_dead: Callable[[Hashable], bool] | None,
    tokenizer: ChatTokenizer | None,
    response_tokens: int,
    truncated: str,
) -> ReplayedEpisode:
    """Play the stored answers.

    Args:
        row: well-formed.
        is_dead: ends the episode in a dead state; None = it continues.
        tokenizer: finds truncated answers and a spent token budget in the stored tokens; without
            one, the row's own statements about these two are taken as true.
        response_tokens: most tokens after the prompt.
        truncated: what happens to a truncated answer, ``skip`` or ``execute``.

    Raises:
        PuzzleError: the stored puzzle is not an unfinished board of its game.
    """
    puzzle = Puzzle(
        game=row.game,
        tier=row.tier,
        puzzle_id=row.puzzle_id,
        board=row.puzzle,
        cost_to_go=None,
        cost_status=UNKNOWN,
        seed=0,
    )
    env = make_environment(puzzle, turn_budget=row.turn_budget, is_dead=is_dead)
    with closing(env):
        return _replayed(env, row, tokenizer, response_tokens, truncated)


def _replayed(
    env: Environment,
    row: ScoredTrajectory,
    tokenizer: ChatTokenizer | None,
    response_tokens: int,
    truncated: str,
) -> ReplayedEpisode:
    messages = [env.start()]
    states, actions, effects, rewards, end_reason = [env.state()], [], [], [0.0], ""
    for turn, answer in enumerate(row.answers):
        if end_reason:
            break
        is_cut_off = _is_truncated(row, turn, tokenizer)
        if is_cut_off and truncated == "skip":
            action, effect, end_reason = "", Effect.TRUNCATED.value, "truncated"
            states.append(states[-1])
            rewards.append(rewards[-1])
            messages.append("")
        else:
            result = env.step(answer)
            action, effect, end_reason = result.action, result.effect.value, result.end_reason
            states.append(result.state)
            rewards.append(result.reward)
            messages.append(result.message)
            is_spent = is_cut_off or _is_budget_spent(
                row, turn, result.message, tokenizer, response_tokens
            )
            if not end_reason and is_spent:
                end_reason, messages[-1] = "token_budget", ""
        actions.append(action)
        effects.append(effect)
    return ReplayedEpisode(
        actions=tuple(actions),
        effects=tuple(effects),
        states=tuple(states),
        messages=tuple(messages),
        rules=env.rules,
        rewards=tuple(rewards),
        end_reason=end_reason,
    )


def game_mismatches(row: ScoredTrajectory, replayed: ReplayedEpisode) -> Iterator[Mismatch]:
    """Yield differences in puzzle, turns, states, reward and end reason."""
    if not is_benchmark(row.game):
        game = get_game(row.game)
        puzzle_id = puzzle_id_of(game, game.decode(row.puzzle))
        if row.puzzle_id != puzzle_id:
            yield Mismatch.of(None, "puzzle_id", row.puzzle_id, puzzle_id)
    if len(row.actions) != len(replayed.actions):
        yield Mismatch.of(len(replayed.actions), "turns", len(row.actions), len(replayed.actions))
    for name in ("actions", "effects"):
        for turn, pair in enumerate(_pairs(getattr(row, name), getattr(replayed, name))):
            if pair[0] != pair[1]:
                yield Mismatch.of(turn, name, *pair)
    for index, pair in enumerate(_pairs(row.states, replayed.states)):
        if pair[0] != pair[1]:
            yield Mismatch.of(_led_by(index), f"states[{index}]", *pair)
    if row.end_reason != replayed.end_reason:
        yield Mismatch.of(None, "end_reason", row.end_reason, replayed.end_reason or "not ended")
    if row.reward != replayed.reward:
        yield Mismatch.of(None, "reward", row.reward, replayed.reward)


def cost_mismatches(row: ScoredTrajectory, costs: np.ndarray) -> Iterator[Mismatch]:
    """Yield stored costs that differ from those of the replayed states.

    Args:
        row: well-formed.
        costs: of the replayed states; ``inf`` = infinite, NaN = unknown.
    """
    for index, cost in enumerate(costs[: len(row.states)]):
        expected = (stored_cost(cost), status_of(cost))
        stored = (row.cost_to_go[index], row.cost_status[index])
        if stored != expected:
            yield Mismatch.of(
                _led_by(index),
                f"cost_to_go[{index}]",
                "{1} {0}".format(*stored),
                "{1} {0}".format(*expected),
            )


def estimate_mismatches(row: ScoredTrajectory, estimates: np.ndarray) -> Iterator[Mismatch]:
    """Yield stored estimates that differ from the network's values of the replayed states.

    Args:
        row: well-formed.
        estimates: of the replayed states; NaN = the run has no network.
    """
    for index, estimate in enumerate(estimates[: len(row.states)].tolist()):
        stored = row.cost_estimates[index]
        found = math.nan if stored is None else stored
        same = math.isclose(found, estimate, rel_tol=0, abs_tol=_SAME_ESTIMATE)
        if not same and not (math.isnan(found) and math.isnan(estimate)):
            yield Mismatch.of(_led_by(index), f"cost_estimates[{index}]", stored, estimate)


def token_mismatches(
    row: ScoredTrajectory, replayed: ReplayedEpisode, tokenizer: ChatTokenizer | None
) -> Iterator[Mismatch]:
    """Yield differences in mask, logprobs and seeds and, given a tokenizer, in the tokens."""
    is_policy = np.zeros(len(row.token_ids), dtype=np.uint8)
    for turn, (start, end) in enumerate(zip(row.turn_starts, row.turn_ends, strict=True)):
        is_policy[start:end] = 1
        seed = derive_seed(row.seed, "turn", turn)
        if row.turn_seeds[turn] != seed:
            yield Mismatch.of(turn, "turn_seeds", row.turn_seeds[turn], seed)
    for token in np.flatnonzero(is_policy != np.array(row.loss_mask))[:1]:
        turn = turn_at(row, int(token))
        yield Mismatch.of(turn, f"loss_mask[{token}]", row.loss_mask[token], is_policy[token])
    logprobs = np.array(row.rollout_logprobs)
    for token in np.flatnonzero(~np.isfinite(logprobs) | ((is_policy == 0) & (logprobs != 0)))[:1]:
        turn = turn_at(row, int(token))
        yield Mismatch.of(turn, f"rollout_logprobs[{token}]", logprobs[token], "0, or finite")
    if tokenizer is not None:
        yield from _text_mismatches(row, replayed, tokenizer)


def _text_mismatches(
    row: ScoredTrajectory, replayed: ReplayedEpisode, tokenizer: ChatTokenizer
) -> Iterator[Mismatch]:
    """Yield answers that are not the text of their tokens, and wrong tokens between answers."""
    opening = tokenizer.opening(replayed.rules, replayed.messages[0])
    yield from _other_tokens(row, None, 0, row.turn_starts[0], opening)
    next_starts = [*row.turn_starts[1:], len(row.token_ids)]
    for turn, (start, end) in enumerate(zip(row.turn_starts, row.turn_ends, strict=True)):
        text = tokenizer.text(row.token_ids[start:end])
        if row.answers[turn] != text:
            yield Mismatch.of(turn, "answers", row.answers[turn], text)
        if set(tokenizer.end_ids) & set(row.token_ids[start : end - 1]):
            yield Mismatch.of(turn, "token_ids", "an end of turn before the end", "none")
        message = replayed.messages[turn + 1] if turn + 1 < len(replayed.messages) else ""
        between = tokenizer.observation(message) if message else []
        yield from _other_tokens(row, turn, end, next_starts[turn], between)


def _other_tokens(
    row: ScoredTrajectory, turn: int | None, start: int, end: int, expected: Sequence[int]
) -> Iterator[Mismatch]:
    stored = row.token_ids[start:end]
    if list(stored) == list(expected):
        return
    same = 0
    while same < min(len(stored), len(expected)) and stored[same] == expected[same]:
        same += 1
    yield Mismatch.of(
        turn,
        f"token_ids[{start + same}]",
        stored[same] if same < len(stored) else "no token",
        expected[same] if same < len(expected) else "no token",
    )


def _is_truncated(row: ScoredTrajectory, turn: int, tokenizer: ChatTokenizer | None) -> bool:
    if tokenizer is None:
        return row.effects[turn] == Effect.TRUNCATED
    return row.token_ids[row.turn_ends[turn] - 1] not in tokenizer.end_ids


def _is_budget_spent(
    row: ScoredTrajectory,
    turn: int,
    message: str,
    tokenizer: ChatTokenizer | None,
    response_tokens: int,
) -> bool:
    """Return whether the next observation leaves no token for another answer."""
    if tokenizer is None:
        return row.end_reason == "token_budget" and turn + 1 == len(row.answers)
    spent = row.turn_ends[turn] - row.turn_starts[0]
    return spent + len(tokenizer.observation(message)) >= response_tokens


def turn_at(row: ScoredTrajectory, token: int) -> int | None:
    """Return the turn that a token belongs to or follows; None in the prompt."""
    turn = int(np.searchsorted(row.turn_starts, token, side="right")) - 1
    return turn if turn >= 0 else None


def _pairs(stored: Sequence[str], replayed: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pair the entries that both have; a different number of turns is reported separately."""
    return zip(stored, replayed, strict=False)


def _led_by(index: int) -> int | None:
    return index - 1 if index else None


def _shown(value: object) -> str:
    text = str(value).replace("\n", "/")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
