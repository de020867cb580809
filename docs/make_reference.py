"""Generates pages from dataclasses and commands; ``make docs`` runs it."""

from __future__ import annotations

import inspect
import pkgutil
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

_API = """# Python API

What `import cast_ray` offers. The import itself is light: torch, Ray and vLLM are loaded when
something that needs them is first used. [If you know RLlib](rllib.md) has a complete run.

`make docs` writes this page from the docstrings; the site shows them in full below each table.
"""
_API_SECTIONS = {
    "Training": {
        "cast_ray.AlgorithmConfig": "environment env_runners engines learners rl_module warm_start "
        "training reward oracle evaluation checkpointing fault_tolerance resources debugging "
        "callbacks validate build_algo copy from_file from_dict to_dict",
        "cast_ray.Algorithm": "step evaluate save_to_path from_checkpoint restore_from_path "
        "save_model get_policy directory train_config steps_done",
        "cast_ray.Callbacks": "on_algorithm_init on_checkpoint_loaded on_episode_end on_sample_end "
        "on_train_result on_evaluate_start on_evaluate_end",
        "cast_ray.training.algorithm.policy.Policy": "",
    },
    "Games, boards and solvers": {
        "cast_ray.get_game": "",
        "cast_ray.Game": "decode encode observe parse apply status actions scored_actions "
        "canonical visible_rows hidden_cells thought rescue_value risk_of is_mark dimensions "
        "start_fault from_json read_boards",
        "cast_ray.GamePlugin": "",
        "cast_ray.make_env": "",
        "cast_ray.Puzzle": "",
        "cast_ray.read_puzzles": "",
        "cast_ray.solve": "",
        "cast_ray.Solution": "",
    },
    "Credit": {"cast_ray.algorithms.credit": ""},
    "Runs, evaluation and configuration": {
        "cast_ray.load_run": "",
        "cast_ray.runs.load.StoredRun": "",
        "cast_ray.evaluate": "",
        "cast_ray.load_config": "",
        "cast_ray.CastRayError": "",
    },
}
"""By section: qualified names, and the methods to list."""


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
        f"| [{name}](#{name.replace(' ', '-')}) | {_cell(_paragraphs(command.help)[0])} |\n"
        for name, command in found
    )
    return _COMMANDS + "".join([*summary, *(part for one in found for part in _command(*one))])


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield the commands below one. Any: of the library that Typer is built on."""
    if not hasattr(command, "commands"):
        yield name, command
    for word, below in getattr(command, "commands", {}).items():
        yield from _leaves(f"{name} {word}", below)


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n")]


def _command(name: str, command: Any) -> Iterator[str]:
    paragraphs = _paragraphs(command.help)
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


def api() -> str:
    """Return the page of the Python API: a table per section, and what mkdocstrings expands."""
    parts = [_API]
    for section, names in _API_SECTIONS.items():
        parts.append(f"\n## {section}\n\n| name | what it is |\n| --- | --- |\n")
        for name, listed in names.items():
            found = pkgutil.resolve_name(name)
            parts.append(f"| `{name}` | {_first_line(found)} |\n")
            parts += [
                f"| `.{word}` | {_first_line(getattr(found, word))} |\n" for word in listed.split()
            ]
        parts.append("\n")
        for name, listed in names.items():
            words = ", ".join(listed.split())
            members = f"    options:\n      members: [{words}]\n" if words else ""
            parts.append(f"::: {name}\n{members}")
    return "".join(parts)


def _first_line(item: object) -> str:
    return _cell(_paragraphs(inspect.getdoc(item) or "")[0])


PAGES = {
    "configuration.md": configuration,
    "metrics.md": metrics,
    "commands.md": commands,
    "api.md": api,
}


def _summary(kind: type, section: str) -> str:
    """Return the first paragraph of the docstring of a section's dataclass."""
    for name in filter(None, section.split(".")):
        found = next(item for item in fields(kind) if item.name == name)
        assert isinstance(found.default_factory, type)
        kind = found.default_factory
    return _first_line(kind)


def _row(one: ConfigKey) -> str:
    default = f"`{one.default}`" if one.default else "(empty)"
    return f"| `{one.key}` | {_cell(one.allowed)} | {default} | {_cell(one.meaning)} |\n"


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    for file, write in PAGES.items():
        (Path(__file__).parent / file).write_text(write())
