"""The command ``cast-ray bench``, whose benchmarks come with the repository, not with the wheel."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from cast_ray.errors import ConfigError

MEASURES = {
    "asynchronous": "seconds per step with rollouts during learning and with rollouts before it",
    "evaluation": "turns per second of an evaluation and of vLLM alone on the same tokens",
    "gym": "steps per second of the numeric Gymnasium environments and of gym-sokoban",
    "learner": "tokens per second of complete updates, of bare PyTorch loops and of TRL",
    "rollout": "turns per second of rollouts and of vLLM alone on the same tokens",
    "scaling": "turns per second of 1, 2, 4 and 8 simulated nodes, and what their processes use",
    "service": "HTTP overhead per turn, 64 games at once, with a simulated and a real engine",
    "simulated": "4,096 episodes on a simulated engine: busy slots, CPU and memory",
    "solve": "seconds of cast-ray solve --q for 10,000 states of 1,000 puzzles",
    "solvers": "microseconds per scored state, and the same in plain Python",
    "startup": "seconds to start the command line, Ray, an engine, and bare vLLM",
    "sync": "seconds to send 1 GB of weights from a learner to an engine, and to copy 1 GB",
    "value-net": "environment steps per CPU second of the value network's DQN and of RLlib's",
}
"""What each benchmark measures; ``benchmarks.main`` has the functions."""
bench_app = typer.Typer(
    help="Measure speed on this machine; the last line of output is one JSON object.",
    no_args_is_help=True,
)


def bench(what: str, plot: Path | None = None) -> None:
    """Run one benchmark and print its figures.

    Raises:
        ConfigError: the benchmarks, which are part of the repository, are not there.
    """
    if find_spec("benchmarks") is None:
        raise ConfigError(
            "the benchmarks are not installed: they are in the folder benchmarks/ of the "
            f"repository; clone it, run make setup there, then .venv/bin/cast-ray bench {what}"
        )
    # By name, because an installed cast_ray has no such module.
    typer.echo(json.dumps(import_module("benchmarks.main").run_benchmark(what, plot=plot)))


def _named(what: str) -> Callable[[], None]:
    return lambda: bench(what)


for _name, _measure in MEASURES.items():
    if _name != "scaling":
        bench_app.command(_name, help=f"{_measure[0].upper()}{_measure[1:]}.")(_named(_name))


@bench_app.command(help=f"{MEASURES['scaling'].capitalize()}.")
def scaling(
    plot: Annotated[
        Path | None, typer.Option(help="SVG file for a plot of turns per second over nodes.")
    ] = None,
) -> None:
    """See ``MEASURES``."""
    bench("scaling", plot)
