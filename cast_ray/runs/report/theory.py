"""The page about the theorem: its claims, corrections and measured numbers; charts aside."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape

from cast_ray.algorithms.theory.measurements import TheoryNumbers
from cast_ray.files import write_text
from cast_ray.games import get_game
from cast_ray.runs.report import wording
from cast_ray.runs.report.boards import draw_board
from cast_ray.runs.report.page import page_templates
from cast_ray.runs.report.theory_charts import approximation_figures
from cast_ray.runs.report.wording import percent, tiny

TOLERANCE = 1e-6
"""Largest difference at which a claim counts as exact; rounding is about 1e-16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One equation and the difference of its two sides."""

    statement: str
    label: str
    """The equation's LaTeX label in the paper; ``ours`` if it is not in the paper."""
    difference: float

    @property
    def holds(self) -> bool:
        """Return whether the two sides agree."""
        return self.difference <= TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A statement of the paper that is too strong, and what holds instead."""

    title: str
    label: str
    text: str


def exact_claims(numbers: TheoryNumbers) -> list[Claim]:
    """Return the claims that hold up to rounding."""
    rows = [*_theorem_rows(numbers), *_appendix_rows(numbers)]
    return [Claim(statement=text, label=label, difference=value) for text, label, value in rows]


def _theorem_rows(numbers: TheoryNumbers) -> list[tuple[str, str, float]]:
    errors, large = numbers.theorem, numbers.two_boxes
    return [
        (
            "Identity transform: CAST’s expected gradient is ∇(task return) − β·∇(cross-entropy to "
            "π_S), β = ατ/(RMS + ε)",
            "eq:implicit_obj",
            errors.identity,
        ),
        (
            f"The same, the left side summed over all {errors.num_episodes:,} episodes one by one",
            "eq:implicit_obj",
            errors.identity_by_episodes,
        ),
        (
            f"The same in a room of two boxes ({len(large.states)} states, {large.horizon} turns)",
            "eq:implicit_obj",
            numbers.theorem_two_boxes.identity,
        ),
        (
            "asinh: the same with the step’s own β_eff, on A/τ",
            "eq:app_beta_eff",
            errors.asinh_beta_eff,
        ),
        (
            "asinh: the same with the constant ατ/(RMS + ε) and a teacher ∝ exp(asinh(Ã)/τ)",
            "ours",
            errors.asinh_own_teacher,
        ),
    ]


def _appendix_rows(numbers: TheoryNumbers) -> list[tuple[str, str, float]]:
    others = numbers.identities
    return [
        (
            "Performance difference, task reward, between a policy and π_S",
            "eq:app_pdl",
            others.performance_difference,
        ),
        (
            "Performance difference, reward augmented by (β/τ)·r̃",
            "eq:app_pdl_applied",
            others.performance_difference_augmented,
        ),
        (
            "Endogenous reward: r̂ = −1 − τ·log Z(s) on moves between states of finite cost",
            "eq:app_endogenous",
            others.endogenous_reward,
        ),
        (
            "Gradient of the return under r̂ less that under r̃ is ∇E[N(s_T)]",
            "eq:app_endogenous",
            others.endogenous_gradient,
        ),
        (
            "Ascent on E[A_task] − β·KL, A_task frozen, ends at π_S·exp(A_task/β), normalised",
            "eq:app_optimal_policy",
            others.closed_form,
        ),
    ]


def corrections(numbers: TheoryNumbers) -> list[Correction]:
    """Return the corrections of the paper's statements."""
    rows = [*_beta_corrections(numbers), *_other_corrections(numbers)]
    return [Correction(title=title, label=label, text=text) for title, label, text in rows]


def _beta_corrections(numbers: TheoryNumbers) -> list[tuple[str, str, str]]:
    errors = numbers.theorem
    largest = errors.largest_entry
    ratio = dict(numbers.beta_ratio)
    return [
        (
            "The visits in the objective stand still",
            "eq:app_main_thm, eq:app_pdl_applied",
            "With d^π frozen the theorem is exact. The objective as its symbols read, and the "
            "augmented return that the appendix says is climbed, move d^π too: their gradient "
            f"differs by {percent(errors.moving_visits / largest)} of the largest entry. Nor is "
            "anything differentiated through the RMS: that objective’s gradient differs by "
            f"{percent(errors.moving_rms / largest)}.",
        ),
        (
            "A = τ·log π_S holds up to the state’s normaliser",
            "eq:app_adv_eq_logprob",
            "The exact costs are shortest paths, not soft values: log π_S = A/τ − log Z(s). Under "
            "a constant β this is a baseline and changes nothing.",
        ),
        (
            "β_eff belongs on A/τ, not on log π_S",
            "eq:app_beta_eff",
            "β_eff depends on the action, so log Z(s) is no baseline there: with the normalised "
            "teacher the corollary is off by "
            f"{percent(errors.asinh_normalised / largest, digits=1)} of the gradient’s largest "
            f"entry at τ = {numbers.tau:g} (chart below).",
        ),
        (
            "β_eff grows before it falls",
            "eq:app_beta_eff",
            f"At A = −1 and −2, a wasted move and a step away, it is {ratio[-1.0]:.2f} times the "
            f"constant β, at −3 {ratio[-3.0]:.2f} times; only from −4 on "
            f"({ratio[-4.0]:.2f}) are outliers weighed down ({ratio[-12.0]:.2f} at −12).",
        ),
    ]


def _other_corrections(numbers: TheoryNumbers) -> list[tuple[str, str, str]]:
    way = numbers.way
    ties = numbers.entropies_two_boxes["cast"][-1][1]
    return [
        (
            "Small signals are most turns, not nearly all",
            "Assumption A2",
            f"|A| ≤ 1 on {percent(way.small_signals[0][1])} of the uniform policy’s turns here, on "
            f"{percent(way.small_signals[-1][1])} of the teacher’s.",
        ),
        (
            "The sum of d^π is the mean length of an episode",
            "notation of the appendix",
            f"It is H only if no episode ends early: {numbers.mean_turns:.2f} of "
            f"{numbers.room.horizon} turns under the uniform policy.",
        ),
        (
            "r̂ and r̃ share a gradient only if every episode is won",
            "eq:app_endogenous",
            "Shaping adds N(s_T) − N(s_0) to a return, and N(s_T) depends on the policy unless it "
            "is 0 (chart below). In the usual sign the potential is −V. As a turn’s weight, which "
            "is how CAST uses its signal, r̂ depends on the state alone: its gradient is 0 "
            f"(measured {tiny(numbers.identities.endogenous_immediate)}), that of r̃ is not. A fall "
            "into a deadlock has no r̂, because V is −∞ there.",
        ),
        (
            "σ scales each board by another number",
            "Assumption A3",
            "For one board GRPO’s expected gradient is exactly c·∇(task return), but c depends on "
            "the board’s success rate. No learning rate absorbs it: relative to the task term, β "
            "differs from board to board and falls as a board becomes very easy or very hard "
            "(chart below).",
        ),
        (
            "Deterministic, but for ties",
            "eq:app_j_kl_form",
            "CAST has no entropy term and keeps only best actions: the closed form is not its "
            "limit. Two equally good ways keep their shares: no entropy remains in this room, "
            f"{ties:.2f} nats in the room of two boxes.",
        ),
    ]


def write_theory_page(numbers: TheoryNumbers, path: Path) -> None:
    """Write the page as one file that loads nothing from other hosts.

    Raises:
        EnvironmentSetupError: it cannot be written.
    """
    write_text(path, _render(numbers))


def _render(numbers: TheoryNumbers) -> str:
    environment = page_templates()
    environment.filters.update(raised=_raised, tiny=wording.tiny)
    room = numbers.room
    sokoban = get_game("sokoban")
    return environment.get_template("theory.html").render(
        numbers=numbers,
        board=draw_board("sokoban", sokoban.encode(room.states[0])),
        num_dead=int((room.cost_to_go == float("inf")).sum()),
        cost=f"{room.cost_to_go[0]:.0f}",
        claims=exact_claims(numbers),
        corrections=corrections(numbers),
        figures=approximation_figures(numbers),
    )


def _raised(text: str) -> Markup:
    """Return text with sub- and superscripts for ``_`` and ``^``."""
    lowered = re.sub(r"_(\w+)", r"<sub>\1</sub>", str(escape(text)))
    return Markup(re.sub(r"\^(\w+(?:\.\d+)?)", r"<sup>\1</sup>", lowered))
