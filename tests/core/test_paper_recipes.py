"""The files for the paper's runs hold the numbers of the page that names their sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from cast_ray.config import TrainConfig
from cast_ray.config_file import load_config

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "paper_recipes.md").read_text()
STEPS = {"sokoban": 200, "minesweeper": 400, "rush_hour": 300}
CLIP = {
    "cast": (0.2, 0.28),
    "dapo": (0.2, 0.28),
    "grpo": (0.2, 0.2),
    "gigpo": (0.2, 0.2),
    "gspo": (3e-4, 4e-4),
}


def recipe(game: str, algorithm: str) -> TrainConfig:
    file = ROOT / "configs" / "train" / f"paper_{game}.yaml"
    return load_config(file, [] if algorithm == "cast" else [f"algorithm={algorithm}"])


@pytest.mark.parametrize("algorithm", CLIP)
@pytest.mark.parametrize("game", STEPS)
def test_every_number_is_the_paper_s(game: str, algorithm: str) -> None:
    config = recipe(game, algorithm)
    learner, objective, advantage = config.learner, config.objective, config.advantage
    assert (config.game, config.tier, config.steps) == (game, "id", STEPS[game])
    assert (config.rollout.puzzles_per_step, config.rollout.group_size) == (16, 8)
    assert (learner.lr, learner.betas) == (1e-6, (0.9, 0.999))
    assert (learner.weight_decay, learner.max_grad_norm, learner.mini_batches) == (0.01, 1.0, 2)
    assert (objective.clip_low, objective.clip_high) == CLIP[algorithm]
    assert objective.kl_coefficient == (0.001 if algorithm in ("grpo", "gigpo") else 0)
    assert objective.dual_clip == (0 if algorithm == "gspo" else 3)
    assert objective.rollout_correction == "none"
    assert advantage.alpha == (0.1 if algorithm == "cast" else 0)
    assert (advantage.transform, advantage.normalisation) == ("asinh", "rms")
    assert (advantage.step_weight, advantage.step_discount) == (float(algorithm == "gigpo"), 0.95)
    assert (config.rollout.temperature, config.rollout.top_p) == (1, 1)
    evaluation = config.evaluation
    assert (evaluation.temperature, evaluation.top_p, evaluation.every) == (0.6, 0.95, 20)
    assert evaluation.validation_attempts == evaluation.held_out_attempts == 4
    assert (config.puzzles.num_train, config.puzzles.num_held_out) == (8000, 200)
    assert config.warm_start.steps == 0
    assert config.max_staleness == 0


def test_the_recipes_take_the_eight_gpus_that_the_page_counts_on() -> None:
    resources = recipe("sokoban", "cast").resources
    assert resources.engines * resources.gpus_per_engine == 4
    assert resources.learner_ranks * resources.gpus_per_learner_rank == 4


def test_the_page_adds_up() -> None:
    play = 128 * 4096 / (4 * 5500 * 0.9)
    learn = 128 * 4096 * 1.25 / (4 * 9900 * 0.95)
    step = play + learn + 4
    assert (round(play), round(learn), round(step)) == (26, 17, 48)
    for name, steps in (("Sokoban", 200), ("Minesweeper", 400), ("Rush Hour", 300)):
        hours = steps * round(step) / 3600
        assert f"| {name} | {steps} | {hours:.1f} | {8 * hours:.0f} |" in PAGE
    assert f"| **a step** | | **{step:.0f}** |" in PAGE
