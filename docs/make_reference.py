"""Generates pages from dataclasses and commands; ``make docs`` runs it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from typer.main import get_command

from cast_ray.cli.config import described_keys
from cast_ray.cli.main import EXIT_CODES, app
from cast_ray.config.reference import ConfigKey
from cast_ray.config.train import TrainConfig
from cast_ray.config.value_net import ValueNetConfig
from cast_ray.runs.metrics import METRIC_TYPES, METRICS, metric_texts

_CONFIGURATION = """# Configuration

Every key of `cast-ray train`, and below those of `cast-ray value-net train`. Set them in a YAML
file (`--config`) or on the command line (`key=value`), which takes precedence. An invalid key or
value is refused with what is allowed. On the command line a text is taken as it is, and any other
value is YAML. `cast-ray config rollout` shows a section in the terminal.

`make docs` generates this page from the dataclasses in `cast_ray/config/`.
"""
_METRICS = """# Metrics

The columns of `metrics.parquet`: one row per step. Shares are between 0 and 1; NaN means that
nothing was measured. The fourth column says how the figures of a step's parts (trajectories, turns,
tokens, updates, processes) become the step's figure. In TensorBoard, columns in seconds are under
`time/` and all others under `train/`; in Prometheus each is `ray_cast_step_<column>`. What to do
when one is bad: [Operations](operations.md).

`make docs` writes this page from `cast_ray.runs.metrics.StepMetrics`.

| column | type | unit | over the step | what it is |
| --- | --- | --- | --- | --- |
"""
_COMMANDS = f"""# Commands

What `--help` says of each. {EXIT_CODES} The option
`--install-completion` makes your shell complete the words.

`make docs` writes this page from the command line.

| command | what it does |
| --- | --- |
"""


def configuration() -> str:
    """Return the page of all configuration keys."""
    parts = [_CONFIGURATION]
    for kind, command in ((TrainConfig, "train"), (ValueNetConfig, "value-net train")):
        parts.append(f"\n## cast-ray {command}\n")
        sections: dict[str, list[ConfigKey]] = {}
        for one in described_keys(kind):
            sections.setdefault(one.key.rpartition(".")[0], []).append(one)
        for name, keys in sections.items():
            parts.append(f"\n### {name or 'Top level'}\n\n{_summary(kind, name)}\n\n")
            parts.append("| key | allowed | default | meaning |\n| --- | --- | --- | --- |\n")
            parts += [_row(one) for one in keys]
    return "".join(parts)


def metrics() -> str:
    """Return the page of all columns of a run's metrics."""
    rows = []
    for name, metric in METRICS.items():
        kind = METRIC_TYPES[name]
        cells = [f"`{name}`", str(kind) if get_args(kind) else kind.__name__, metric.unit or "–"]
        cells += [metric.aggregation, metric_texts()[name]]
        rows.append(f"| {' | '.join(map(_cell, cells))} |\n")
    return _METRICS + "".join(rows)


def commands() -> str:
    """Return the page of all commands: what ``--help`` says of each."""
    found = list(_leaves("cast-ray", get_command(app)))
    summary = (
        f"| [{name}](#{name.replace(' ', '-')}) | {_cell(_paragraphs(command)[0])} |\n"
        for name, command in found
    )
    return _COMMANDS + "".join([*summary, *(part for one in found for part in _command(*one))])


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield the commands below one. Any: of the library that Typer is built on."""
    if not hasattr(command, "commands"):
        yield name, command
    for word, below in getattr(command, "commands", {}).items():
        yield from _leaves(f"{name} {word}", below)


def _paragraphs(command: Any) -> list[str]:
    return [" ".join(text.split()) for text in inspect.cleandoc(command.help).split("\n\n")]


def _command(name: str, command: Any) -> Iterator[str]:
    paragraphs = _paragraphs(command)
    yield "\n".join([f"\n## {name}\n", *(f"{_cell(text)}\n" for text in paragraphs)])
    rows = [
        f"| {_cell(', '.join(f'`{word}`' for word in _words(one)))} | {_cell(one.help or '')} |\n"
        for one in command.params
        if one.name != "help"
    ]
    if rows:
        yield "\n| argument or option | meaning |\n| --- | --- |\n" + "".join(rows)


def _words(parameter: Any) -> list[str]:
    """Return how an argument or option is written."""
    is_option = parameter.param_type_name == "option"
    return [*parameter.opts] if is_option else [parameter.name.upper()]


PAGES = {"configuration.md": configuration, "metrics.md": metrics, "commands.md": commands}


def _summary(kind: type, section: str) -> str:
    """Return the first paragraph of the docstring of a section's dataclass."""
    for name in filter(None, section.split(".")):
        found = next(item for item in fields(kind) if item.name == name)
        assert isinstance(found.default_factory, type)
        kind = found.default_factory
    return _cell(" ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split()))


def _row(one: ConfigKey) -> str:
    default = f"`{one.default}`" if one.default else "(empty)"
    return f"| `{one.key}` | {_cell(one.allowed)} | {default} | {_cell(one.meaning)} |\n"


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    for file, write in PAGES.items():
        (Path(__file__).parent / file).write_text(write())
