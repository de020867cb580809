"""Charts of what is only approximate about the theorem."""

from __future__ import annotations

from cast_ray.algorithms.theory.approximations import Curve
from cast_ray.algorithms.theory.measurements import TheoryNumbers
from cast_ray.runs.report.line_chart import Figure, Line, line_figure
from cast_ray.runs.report.wording import percent, tiny

_WAY = "percent of the way to the teacher"


def approximation_figures(numbers: TheoryNumbers) -> list[Figure]:
    """Return the charts: the solver term, then visits and sigma, then the limits."""
    return [*_beta_figures(numbers), *_policy_figures(numbers), *_limit_figures(numbers)]


def _beta_figures(numbers: TheoryNumbers) -> list[Figure]:
    small, way = numbers.small_signal, numbers.way
    ends = (way.constant_beta[0][1], way.constant_beta[-1][1])
    return [
        line_figure(
            "Constant β with 1/√2: the limit",
            "All advantages A are halved repeatedly; the RMS is recomputed each time and is on "
            "both sides. The error of the gradient falls like "
            f"s^{small.error_slope:.2f}, as a share of the solver term, which itself falls like s, "
            f"like s^{small.relative_slope:.2f}.",
            _lines({"error": small.error, "share": small.relative_error}),
            beside="eq:app_shape_logprob",
            x_name="halvings of A",
            write=lambda value: f"1e{value:g}".replace("-", "−"),  # value is a power of ten
            from_zero=False,
        ),
        line_figure(
            "Constant β with 1/√2: real costs",
            f"Error as a share of the solver term’s gradient, s = 1: {percent(ends[0])} for the "
            f"uniform policy, {percent(ends[1])} for the teacher. Also shown: the share of turns "
            "with |A| ≤ 1.",
            _lines({"error": way.constant_beta, "|A| ≤ 1": way.small_signals}),
            beside="eq:implicit_obj",
            x_name=_WAY,
            write=percent,
        ),
        line_figure(
            "β_eff by the constant β",
            "asinh is steepest at Ã = 0, that is at A = −1: bad moves weigh more than the constant "
            "β says, until about A = −3.6.",
            _lines({"": numbers.beta_ratio}),
            beside="eq:app_beta_eff",
            x_name="advantage A = Ã − 1",
            write=lambda value: f"{value:.2g}",
        ),
        line_figure(
            "β_eff with the normalised teacher",
            "Error of β_eff·log π_S as a share of the solver term’s gradient. It vanishes with τ, "
            "where Z(s) becomes the number of best actions and β_eff vanishes.",
            _lines({"": tuple((10 * tau, gap) for tau, gap in numbers.normaliser)}),
            beside="eq:app_beta_eff",
            x_name="temperature τ, in tenths",
            write=percent,
        ),
    ]


def _policy_figures(numbers: TheoryNumbers) -> list[Figure]:
    way = numbers.way
    return [
        line_figure(
            "Visits not frozen: what is left out",
            "Gradient that the frozen visits leave out, as a share of the solver term’s gradient.",
            _lines({"": way.moving_part}),
            beside="Assumption A4",
            x_name=_WAY,
            write=percent,
        ),
        line_figure(
            "Visits not frozen: the direction",
            "Cosine between CAST’s gradient and that of the objective whose visits move: the full "
            f"update at α = {numbers.alpha:g}, and the solver term alone, which is what is left "
            "of it as α grows.",
            _lines({"update": way.cosine, "solver": way.cosine_solver_term}),
            beside="Assumption A4",
            x_name=_WAY,
            write=lambda value: f"{value:.2f}",
            from_zero=False,
        ),
        line_figure(
            "β is a batch’s number",
            "β = ατ/(RMS + ε) moves with the policy, because the RMS does: each step climbs a "
            "different objective.",
            _lines({"": way.beta}),
            beside="eq:rms_norm",
            x_name=_WAY,
            write=lambda value: f"{value:.3f}".rstrip("0").rstrip("."),
        ),
        line_figure(
            "σ in the outcome term",
            "What the division by σ makes of β relative to the task term, in multiples of β: 1/c "
            "with the gain c of the outcome term, for groups of 8 (as in training) and 64.",
            _lines({f"G = {size}": curve for size, curve in numbers.board_beta.items()}),
            beside="eq:outcome_advantage",
            x_name="success rate of the board, in percent",
            write=lambda value: f"{value:.1f}",
        ),
    ]


def _limit_figures(numbers: TheoryNumbers) -> list[Figure]:
    paths = numbers.entropies
    return [
        line_figure(
            "Where the objectives lead",
            "Mean entropy in nats over steps of natural gradient ascent from the uniform policy. "
            f"KL-regularised, task advantage frozen: {paths['kl'][-1][1]:.3f}, the closed form. "
            f"Without the entropy term: {paths['cross_entropy'][-1][1]:.3f}, ties alone. CAST "
            f"itself, recomputed at every step: {tiny(paths['cast'][-1][1])}.",
            _lines(
                {"KL": paths["kl"], "no entropy": paths["cross_entropy"], "CAST": paths["cast"]}
            ),
            beside="eq:app_j_kl_form",
            x_name="step",
            write=lambda value: f"{value:.1f}",
        ),
        line_figure(
            "Two rewards, one gradient? By horizon",
            "Difference of the gradients of the return under r̂ and r̃, as a share of the latter; "
            "uniform policy in a corridor without deadlocks. It vanishes as every episode is won.",
            _lines({"": numbers.endogenous}),
            beside="eq:app_endogenous",
            x_name="turns",
            write=percent,
        ),
    ]


def _lines(curves: dict[str, Curve]) -> list[Line]:
    return [
        Line(label=name, style=style, points=curve)
        for style, (name, curve) in zip("abc", curves.items(), strict=False)
    ]
