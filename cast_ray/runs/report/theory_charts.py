"""Charts of what is only approximate about the theorem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from cast_ray.algorithms.theory.approximations import Curve
from cast_ray.algorithms.theory.measurements import TheoryNumbers
from cast_ray.runs.report.line_chart import Line, line_chart
from cast_ray.runs.report.wording import percent, tiny

_SIZE = (420, 220)
_STYLES = ("a", "b", "c")
_WAY = "percent of the way to the teacher"


@dataclass(frozen=True, slots=True, kw_only=True)
class TheoryFigure:
    """One chart with its texts."""

    title: str
    label: str
    """Of the equation, in the paper."""
    caption: str
    chart: Markup


def approximation_figures(numbers: TheoryNumbers) -> list[TheoryFigure]:
    """Return the charts: the solver term, then visits and sigma, then the limits."""
    return [*_beta_figures(numbers), *_policy_figures(numbers), *_limit_figures(numbers)]


def _beta_figures(numbers: TheoryNumbers) -> list[TheoryFigure]:
    small, way = numbers.small_signal, numbers.way
    ends = (way.constant_beta[0][1], way.constant_beta[-1][1])
    return [
        _figure(
            "Constant β with 1/√2: the limit",
            "eq:app_shape_logprob",
            "All advantages A are halved repeatedly; the RMS is recomputed each time and is on "
            "both sides. The error of the gradient falls like "
            f"s^{small.error_slope:.2f}, as a share of the solver term, which itself falls like s, "
            f"like s^{small.relative_slope:.2f}.",
            {"error": small.error, "share": small.relative_error},
            x_name="halvings of A",
            write=lambda value: f"1e{value:g}".replace("-", "−"),  # value is a power of ten
            from_zero=False,
        ),
        _figure(
            "Constant β with 1/√2: real costs",
            "eq:implicit_obj",
            f"Error as a share of the solver term’s gradient, s = 1: {percent(ends[0])} for the "
            f"uniform policy, {percent(ends[1])} for the teacher. Also shown: the share of turns "
            "with |A| ≤ 1.",
            {"error": way.constant_beta, "|A| ≤ 1": way.small_signals},
            x_name=_WAY,
            write=percent,
        ),
        _figure(
            "β_eff by the constant β",
            "eq:app_beta_eff",
            "asinh is steepest at Ã = 0, that is at A = −1: bad moves weigh more than the constant "
            "β says, until about A = −3.6.",
            {"": numbers.beta_ratio},
            x_name="advantage A = Ã − 1",
            write=lambda value: f"{value:.2g}",
        ),
        _figure(
            "β_eff with the normalised teacher",
            "eq:app_beta_eff",
            "Error of β_eff·log π_S as a share of the solver term’s gradient. It vanishes with τ, "
            "where Z(s) becomes the number of best actions and β_eff vanishes.",
            {"": tuple((10 * tau, gap) for tau, gap in numbers.normaliser)},
            x_name="temperature τ, in tenths",
            write=percent,
        ),
    ]


def _policy_figures(numbers: TheoryNumbers) -> list[TheoryFigure]:
    way = numbers.way
    return [
        _figure(
            "Visits not frozen: what is left out",
            "Assumption A4",
            "Gradient that the frozen visits leave out, as a share of the solver term’s gradient.",
            {"": way.moving_part},
            x_name=_WAY,
            write=percent,
        ),
        _figure(
            "Visits not frozen: the direction",
            "Assumption A4",
            "Cosine between CAST’s gradient and that of the objective whose visits move: the full "
            f"update at α = {numbers.alpha:g}, and the solver term alone, which is what is left "
            "of it as α grows.",
            {"update": way.cosine, "solver": way.cosine_solver_term},
            x_name=_WAY,
            write=lambda value: f"{value:.2f}",
            from_zero=False,
        ),
        _figure(
            "β is a batch’s number",
            "eq:rms_norm",
            "β = ατ/(RMS + ε) moves with the policy, because the RMS does: each step climbs a "
            "different objective.",
            {"": way.beta},
            x_name=_WAY,
            write=lambda value: f"{value:.3f}".rstrip("0").rstrip("."),
        ),
        _figure(
            "σ in the outcome term",
            "eq:outcome_advantage",
            "What the division by σ makes of β relative to the task term, in multiples of β: 1/c "
            "with the gain c of the outcome term, for groups of 8 (as in training) and 64.",
            {f"G = {size}": curve for size, curve in numbers.board_beta.items()},
            x_name="success rate of the board, in percent",
            write=lambda value: f"{value:.1f}",
        ),
    ]


def _limit_figures(numbers: TheoryNumbers) -> list[TheoryFigure]:
    paths = numbers.entropies
    return [
        _figure(
            "Where the objectives lead",
            "eq:app_j_kl_form",
            "Mean entropy in nats over steps of natural gradient ascent from the uniform policy. "
            f"KL-regularised, task advantage frozen: {paths['kl'][-1][1]:.3f}, the closed form. "
            f"Without the entropy term: {paths['cross_entropy'][-1][1]:.3f}, ties alone. CAST "
            f"itself, recomputed at every step: {tiny(paths['cast'][-1][1])}.",
            {"KL": paths["kl"], "no entropy": paths["cross_entropy"], "CAST": paths["cast"]},
            x_name="step",
            write=lambda value: f"{value:.1f}",
        ),
        _figure(
            "Two rewards, one gradient? By horizon",
            "eq:app_endogenous",
            "Difference of the gradients of the return under r̂ and r̃, as a share of the latter; "
            "uniform policy in a corridor without deadlocks. It vanishes as every episode is won.",
            {"": numbers.endogenous},
            x_name="turns",
            write=percent,
        ),
    ]


def _figure(
    title: str,
    label: str,
    caption: str,
    curves: dict[str, Curve],
    *,
    x_name: str,
    write: Callable[[float], str],
    from_zero: bool = True,
) -> TheoryFigure:
    lines = [
        Line(label=name, style=style, points=curve)
        for style, (name, curve) in zip(_STYLES, curves.items(), strict=False)
    ]
    chart = line_chart(
        lines, title=title, x_name=x_name, write=write, from_zero=from_zero, size=_SIZE
    )
    return TheoryFigure(title=title, label=label, caption=caption, chart=chart)
