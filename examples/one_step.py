"""One training step of CAST in one process, with the functions that a real run calls.

Boards, episodes of a tiny policy, exact costs, credit, loss, one optimizer step: each stage prints
what it made. No Ray, no vLLM, no DeepSpeed; about half a minute on one core.

    python examples/one_step.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from cast_ray.algorithms.credit import CREDIT_STEPS, Credit, add_advantages
from cast_ray.algorithms.losses import token_mean_weights
from cast_ray.algorithms.objective import TokenInputs, policy_loss
from cast_ray.config.learning import AdvantageConfig, ObjectiveConfig
from cast_ray.config.train import PolicyConfig, WarmStartConfig
from cast_ray.games import get_game
from cast_ray.games.generators import build_puzzles
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import read_chat_pieces
from cast_ray.rollout.episode import EpisodeSpec, Sampling, play_episode
from cast_ray.rollout.generate import Completion, GenerateRequest, Lane
from cast_ray.rollout.trajectory import Trajectory, to_rollout_batch
from cast_ray.training.warm_start import build_initial_model, demonstrations
from solver_actors.oracle import Oracle
from solver_actors.registry import StartSolver

GAME, TIER, GROUP_SIZE, SEED = "sokoban", "mini", 4, 1
TURN_BUDGET = get_game(GAME).tiers[TIER].turn_budget
SAMPLING = Sampling(
    temperature=1.0,
    top_p=1.0,
    max_answer_tokens=8,
    prompt_tokens=2048,
    response_tokens=4096,
    conversation_tokens=6144,
    truncated="skip",
)


def say(stage: str, text: str) -> None:
    print(f"\n── {stage} ──\n{text}", flush=True)


def make_boards() -> list[Puzzle]:
    """Generate boards and solve each: N(s_0) is how many moves the goal is away."""
    boards = build_puzzles(game=GAME, tier=TIER, count=40, seed=SEED, solve=StartSolver(GAME).solve)
    say("1. Boards", f"{boards[0].board}\nN = {boards[0].cost_to_go} moves to the goal")
    return boards


def make_policy(folder: Path, boards: list[Puzzle]) -> tuple[PreTrainedModel, ChatTokenizer]:
    """Build a small Qwen3 and let it imitate a demonstrator for a few updates."""
    num_parameters = build_initial_model(
        folder,
        game=GAME,
        turn_budget=TURN_BUDGET,
        puzzles=boards,
        policy=PolicyConfig(num_layers=2),
        max_tokens=SAMPLING.prompt_tokens + SAMPLING.response_tokens,
        seed=SEED,
    )
    tokenizer = ChatTokenizer(folder, read_chat_pieces(folder))
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=False
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    plan = WarmStartConfig(steps=60, trajectories_per_step=6, careless_steps=0)
    games = demonstrations(
        boards, plan, tokenizer=tokenizer, turn_budget=TURN_BUDGET, ends_dead=True, seed=SEED
    ).to_pylist()
    loss = torch.zeros(())
    for update in range(plan.steps):
        shown = games[update * plan.trajectories_per_step :][: plan.trajectories_per_step]
        loss = -torch.cat([logprobs_of(model, game) for game in shown]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    say(
        "2. Policy",
        f"{num_parameters:,} weights; cross-entropy {loss.item():.2f} after {plan.steps} updates "
        "on demonstrations",
    )
    return model, tokenizer


def logprobs_of(model: PreTrainedModel, game: dict) -> torch.Tensor:
    """Return the log-probabilities of the tokens that the policy wrote, with gradient."""
    token_ids = torch.tensor(game["token_ids"])
    is_ours = torch.tensor(game["loss_mask"], dtype=torch.bool)
    logits = model(token_ids[None, :-1]).logits[0]
    logprobs = logits.log_softmax(-1).gather(-1, token_ids[1:, None])[:, 0]
    return logprobs[is_ours[1:]]


class Engine:
    """Answers one episode's requests; in a run that is vLLM behind Ray Serve."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._cache = None  # keys and values of the conversation so far

    async def __call__(self, request: GenerateRequest, lane: Lane) -> Completion:
        random = torch.Generator().manual_seed(request.seed % 2**63)
        tokens, logprobs = list(request.token_ids), []
        while len(logprobs) < request.max_tokens:
            distribution = self._next_token(tokens)
            token = int(torch.multinomial(distribution.exp(), 1, generator=random))
            tokens.append(token)
            logprobs.append(float(distribution[token]))
            if token in request.stop_token_ids:
                break
        written = tuple(tokens[len(request.token_ids) :])
        return Completion(
            token_ids=written,
            rollout_logprobs=tuple(logprobs),
            finish_reason="stop" if written[-1] in request.stop_token_ids else "length",
            weight_versions=(1,) * len(written),
        )

    @torch.no_grad()
    def _next_token(self, tokens: list[int]) -> torch.Tensor:
        """Return the log-probabilities of the token after these; only new ones are computed."""
        known = 0 if self._cache is None else self._cache.get_seq_length()
        new = torch.tensor([tokens[known:]])
        output = self._model(new, past_key_values=self._cache, use_cache=True)
        self._cache = output.past_key_values
        return output.logits[0, -1].log_softmax(-1)


def play_group(model: PreTrainedModel, tokenizer: ChatTokenizer, board: Puzzle) -> pa.RecordBatch:
    """Play one board several times: a group, whose rewards are compared with each other."""
    played: list[Trajectory] = [
        asyncio.run(
            play_episode(
                EpisodeSpec(
                    step=1,
                    group=0,
                    episode=episode,
                    attempt=0,
                    puzzle=board,
                    turn_budget=TURN_BUDGET,
                    seed=SEED + episode,
                ),
                tokenizer=tokenizer,
                generate=Engine(model),
                sampling=SAMPLING,
                is_dead=None,
            )
        )
        for episode in range(GROUP_SIZE)
    ]
    lines = [f"{' '.join(one.actions)}  → {one.end_reason}, reward {one.reward}" for one in played]
    say("3. Episodes", "\n".join(lines))
    return to_rollout_batch(played)


def credit_turns(scored: pa.Table, config: AdvantageConfig) -> pa.Table:
    """Turn the costs into an advantage for every turn and token, one named step after another."""
    costs = scored["cost_to_go"][0].as_py()
    lines = [f"N(s_0) .. N(s_T) of the first episode: {[None if c is None else c for c in costs]}"]
    credit = Credit(scored=scored, config=config)
    num_turns = len(costs) - 1
    for step in CREDIT_STEPS:
        credit = step(credit)
        shown = {
            "shift": credit.shifted,
            "compare": credit.outcome,
            "weigh": credit.turn,
            "spread": credit.turn,
        }
        values = shown.get(step.__name__, credit.solver)[:num_turns]
        lines.append(f"{step.__name__:>10}: {np.round(values, 2).tolist()}")
    say("4. Credit", "\n".join(lines))
    batch, summary = add_advantages(scored, config)
    print(f"{summary.progress_fraction:.0%} of the turns came closer to the goal")
    return batch


def update(model: PreTrainedModel, batch: pa.Table) -> None:
    """Take one step on the clipped surrogate, and show that it moved the policy as told."""
    rows = batch.to_pylist()
    before = [logprobs_of(model, row) for row in rows]
    advantages = torch.cat(
        [
            torch.tensor(r["token_advantages"])[torch.tensor(r["loss_mask"], dtype=torch.bool)]
            for r in rows
        ]
    )
    logprobs, count = torch.cat(before), len(advantages)
    share = policy_loss(
        ObjectiveConfig(),
        TokenInputs(
            learner_logprobs=logprobs,
            entropy=torch.zeros(count),
            start_logprobs=logprobs.detach(),
            advantages=advantages,
            reference_logprobs=None,
            rollout_weights=torch.ones(count),
            weights=torch.from_numpy(token_mean_weights(np.ones(count, dtype=bool))),
            trajectory=torch.repeat_interleave(torch.tensor([len(one) for one in before])),
        ),
    )
    share.loss.backward()
    torch.optim.AdamW(model.parameters(), lr=1e-4).step()
    with torch.no_grad():
        moved = torch.cat([logprobs_of(model, row) for row in rows]) - logprobs
    rose, fell = moved[advantages > 0].mean().item(), moved[advantages < 0].mean().item()
    say(
        "5. Update",
        f"loss {share.loss.item():+.4f}; log-probability of tokens whose advantage is "
        f"above 0: {rose:+.4f}, below 0: {fell:+.4f}",
    )


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    oracle = Oracle(max_bytes=2**28)
    boards = make_boards()
    with tempfile.TemporaryDirectory() as folder:
        model, tokenizer = make_policy(Path(folder) / "policy", boards)
        rollout = play_group(model, tokenizer, boards[0])
    scored = pa.Table.from_batches([oracle.score(rollout)])
    batch = credit_turns(scored, AdvantageConfig(alpha=0.1))
    update(model, batch)


if __name__ == "__main__":
    main()
