"""Who is evaluated: trained models, models behind an endpoint, built-in players."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig, ValueNetOracleConfig
from cast_ray.errors import ConfigError, ModelError
from cast_ray.runs.remote_directories import has_file, is_whole, localized
from cast_ray.runs.remote_run import is_run
from cast_ray.runs.remote_session import stored_config
from cast_ray.runs.uris import PathOrUri, path_or_uri
from solver_actors.oracle import Oracle
from solver_actors.players import Player, is_player

logger = logging.getLogger(__name__)

_ENDPOINT = "openai:"
_PROMPT_TOKENS, _RESPONSE_TOKENS = 2048, 16384
"""Of models that bring no configuration of a run (paper, tab:eval_open and tab:eval_closed)."""
_MOST_TURNS = 40
"""Of an episode of any tier."""
_CLOSED_SAMPLING = ("evaluation.temperature=1.0", "evaluation.top_p=1.0")


class Kind(StrEnum):
    """How a model is asked."""

    ENGINE = "engine"
    """A directory whose weights our engines load."""
    ENDPOINT = "endpoint"
    """A name behind an OpenAI-compatible interface."""
    PLAYER = "player"
    """Built in, no language model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedModel:
    """One row of the result table."""

    label: str
    kind: Kind
    sources: tuple[str, ...]
    """As given. Several run directories are averaged; else there is one."""
    configs: tuple[TrainConfig, ...]
    """Sampling, budgets and engine, one for each source."""

    @property
    def name(self) -> str:
        """Of an endpoint's model, or of a player."""
        return self.sources[0].removeprefix(_ENDPOINT)

    @property
    def locations(self) -> tuple[PathOrUri, ...]:
        """Run or model directories, if our engines load it."""
        return tuple(map(path_or_uri, self.sources))


def parse_model(text: str, overrides: Sequence[str], *, label: str = "") -> EvaluatedModel:
    """Read a model as the command line names it.

    Args:
        text: model or run directory or its URI, several run directories with commas between (they
            are averaged), ``openai:NAME``, or a built-in player.
        overrides: configuration values as key=value, above the model's own.
        label: for tables; empty = its name.

    Raises:
        ConfigError, ModelError, RunDirectoryError: there is no such model, or a value is wrong.
    """
    if text.startswith(_ENDPOINT):
        kind, sources = Kind.ENDPOINT, (text,)
        if text == _ENDPOINT:
            raise ConfigError("openai: needs the model's name at the endpoint, as openai:NAME")
        base = (*_limits(_PROMPT_TOKENS + _RESPONSE_TOKENS), *_CLOSED_SAMPLING)
    elif is_player(text):
        Player(text, Oracle(max_bytes=0))  # says what is wrong with it
        kind, sources, base = Kind.PLAYER, (text,), ()
    else:
        from cast_ray.learner.small_policy import read_chat_pieces  # transformers

        kind = Kind.ENGINE
        sources = tuple(word.strip() for word in text.split(",") if word.strip())
        for source in sources:
            read_chat_pieces(_files_of(source))  # says now if it cannot hold a conversation
        base = ()
    configs = []
    for source in sources:
        stored = stored_config(path_or_uri(source)) if kind is Kind.ENGINE else None
        if kind is Kind.ENGINE and stored is None:
            base = _limits(_longest_conversation(source))
        config = load_config(stored, [*(() if stored else base), *overrides])
        # Whatever taught the model, exact solvers say how well it plays.
        config = replace(
            config,
            oracle="exact",
            value_net=ValueNetOracleConfig(),
            resources=replace(config.resources, gpus_per_oracle_actor=0.0),
        )
        configs.append(_with_tokens_per_turn(config, kind, source))
    return EvaluatedModel(
        label=label or ",".join(_short(source) for source in sources),
        kind=kind,
        sources=sources,
        configs=tuple(configs),
    )


def parse_models(
    texts: Sequence[str], overrides: Sequence[str], *, labels: Sequence[str]
) -> list[EvaluatedModel]:
    """Read all models of an evaluation; see ``parse_model``.

    Raises:
        ConfigError: two have one label, or there are more labels than models.
    """
    if not texts:
        raise ConfigError("give --model: a run or model directory, openai:NAME or a player")
    if len(labels) > len(texts):
        raise ConfigError(f"{len(labels)} --name for {len(texts)} --model: at most one for each")
    padded = [*labels, *[""] * (len(texts) - len(labels))]
    models = [
        parse_model(text, overrides, label=label) for text, label in zip(texts, padded, strict=True)
    ]
    for place, model in enumerate(models):
        if model.label in [other.label for other in models[:place]]:
            raise ConfigError(f"two models are called {model.label}: give each a --name")
    return models


def model_directory(model: PathOrUri) -> PathOrUri:
    """Return the directory with a model's weights: itself, or a run's ``model/``.

    Raises:
        ModelError: there is none.
    """
    if is_run(model):
        trained = model / "model"
        if not is_whole(trained):
            raise ModelError(f"{model} has no trained model yet; finish it with cast-ray train")
        return trained
    if not has_file(model, "config.json"):
        raise ModelError(
            f"{model} is neither a model directory (config.json) nor a run directory (config.yaml)"
        )
    return model


def _limits(longest: int) -> tuple[str, ...]:
    """Return the paper's budgets, the episode's cut to what a model can hold."""
    response = min(_RESPONSE_TOKENS, max(longest - _PROMPT_TOKENS, 1))
    return (
        f"rollout.prompt_tokens={min(_PROMPT_TOKENS, longest)}",
        f"rollout.response_tokens={response}",
        f"rollout.max_answer_tokens={response}",
    )


def _with_tokens_per_turn(config: TrainConfig, kind: Kind, source: str) -> TrainConfig:
    """Return the budgets of an episode whose every turn may use what else is the episode's."""
    rollout = config.rollout
    if not config.evaluation.tokens_per_turn:
        return config
    per_turn = rollout.response_tokens
    longest = rollout.prompt_tokens + _MOST_TURNS * (rollout.prompt_tokens + per_turn)
    if kind is Kind.ENGINE:
        longest = min(longest, _most_positions(source) or longest)
    response = max(longest - rollout.prompt_tokens, 1)
    budgets = replace(rollout, max_answer_tokens=per_turn, response_tokens=response)
    return replace(config, rollout=budgets)


def _most_positions(source: str) -> int | None:
    """Return the longest conversation of a model, as its own files say it."""
    text = (_files_of(source) / "config.json").read_text(encoding="utf-8")
    return json.loads(text).get("max_position_embeddings")


def _files_of(source: str) -> Path:
    """Return a local directory with all of a model but its weights."""
    return localized(model_directory(path_or_uri(source)), with_weights=False)


def _longest_conversation(source: str) -> int:
    """Return the most tokens that a model directory's own configuration allows."""
    wanted = _PROMPT_TOKENS + _RESPONSE_TOKENS
    longest = _most_positions(source) or wanted
    if longest < wanted:
        logger.warning(
            "%s holds conversations of %d tokens, less than the paper's %d: its episodes are "
            "shorter",
            source,
            longest,
            wanted,
        )
    return longest


def _short(source: str) -> str:
    return source if source.startswith(_ENDPOINT) or is_player(source) else path_or_uri(source).name
