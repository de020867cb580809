"""Parses what ``--model`` names: trained models, models behind an endpoint, built-in players."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig, ValueNetOracleConfig
from cast_ray.errors import ConfigError, ModelError
from cast_ray.rollout.chat_template import ChatPieces, read_chat_pieces
from cast_ray.rollout.specs import model_limit, with_model_limit
from cast_ray.runs.hub import pinned
from cast_ray.runs.remote_directories import has_file, is_whole, sound_model
from cast_ray.runs.remote_run import is_run
from cast_ray.runs.remote_session import stored_config
from cast_ray.runs.uris import PathOrUri, path_or_uri
from serve.engine.vllm_args import check_vllm_options
from solver_actors.oracle import Oracle
from solver_actors.players import Player, is_player

logger = logging.getLogger(__name__)

_ENDPOINT = "openai:"
_PROMPT_TOKENS, _RESPONSE_TOKENS = 2048, 16384
"""For models without a run's configuration (paper, tab:eval_open and tab:eval_closed)."""
_MOST_TURNS = 40
"""The largest turn budget of any tier."""
_CLOSED_SAMPLING = ("evaluation.temperature=1.0", "evaluation.top_p=1.0")


class Kind(StrEnum):
    """How a model is run."""

    ENGINE = "engine"
    """A directory whose weights our engines load."""
    ENDPOINT = "endpoint"
    """A model behind an OpenAI-compatible API."""
    PLAYER = "player"
    """A built-in player, not a language model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedModel:
    """One row of the result table."""

    label: str
    kind: Kind
    sources: tuple[str, ...]
    """As given, a hub's model by its commit: one, or several run directories that are averaged."""
    configs: tuple[TrainConfig, ...]
    """Sampling, budgets and engine, one for each source."""

    @property
    def name(self) -> str:
        """Name of an endpoint's model or of a player."""
        return self.sources[0].removeprefix(_ENDPOINT)

    @property
    def locations(self) -> tuple[PathOrUri, ...]:
        """Run or model directories, if our engines load it."""
        return tuple(map(path_or_uri, self.sources))


def parse_model(text: str, overrides: Sequence[str], *, label: str = "") -> EvaluatedModel:
    """Parse a model of the command line.

    Args:
        text: model or run directory or its URI, a hub's model, several run directories separated by
            commas (they are averaged), ``openai:NAME``, or a built-in player.
        overrides: configuration values as key=value, which replace the model's own.
        label: name in tables; empty = the model's name.

    Raises:
        ConfigError, ModelError, RunDirectoryError: there is no such model, or a value is invalid.
    """
    if text.startswith(_ENDPOINT):
        kind, sources = Kind.ENDPOINT, (text,)
        if text == _ENDPOINT:
            raise ConfigError("openai: needs the model's name at the endpoint: give openai:NAME")
        base = (*_limits(_PROMPT_TOKENS + _RESPONSE_TOKENS), *_CLOSED_SAMPLING)
    elif is_player(text):
        Player(text, Oracle(max_bytes=0))  # raises if it is invalid
        kind, sources, base = Kind.PLAYER, (text,), ()
    else:
        kind = Kind.ENGINE
        sources = tuple(pinned(word.strip()) for word in text.split(",") if word.strip())
        base = ()
    configs = []
    for source in sources:
        stored = stored_config(path_or_uri(source)) if kind is Kind.ENGINE else None
        if kind is Kind.ENGINE and stored is None:
            base = _limits(_longest_conversation(source))
        config = load_config(stored, [*(() if stored else base), *overrides], is_stored=True)
        if kind is Kind.ENGINE:
            pieces_of(path_or_uri(source), config)  # raises now if its chat template cannot be used
        check_vllm_options(config.engine.vllm)
        # Exact solvers score the play, whatever oracle trained the model.
        config = replace(
            config,
            oracle="exact",
            value_net=ValueNetOracleConfig(),
            resources=replace(
                config.resources,
                oracle_actors=max(1, config.resources.oracle_actors),
                gpus_per_oracle_actor=0.0,
            ),
        )
        config = _with_tokens_per_turn(config, kind, source)
        if kind is Kind.ENGINE:
            config = with_model_limit(config, _files_of(source))
        configs.append(config)
    return EvaluatedModel(
        label=label or ",".join(_short(source) for source in sources),
        kind=kind,
        sources=sources,
        configs=tuple(configs),
    )


def parse_models(
    texts: Sequence[str], overrides: Sequence[str], *, labels: Sequence[str]
) -> list[EvaluatedModel]:
    """Parse all models of an evaluation; see ``parse_model``.

    Raises:
        ConfigError: two have the same label, or there are more labels than models.
    """
    if not texts:
        raise ConfigError(
            "give --model: a run or model directory, openai:NAME or a built-in player"
        )
    if len(labels) > len(texts):
        raise ConfigError(
            f"{len(labels)} --name for {len(texts)} --model: give at most one per model"
        )
    if any(word.partition("=")[0] == "puzzles.file" and word[13:] for word in overrides):
        raise ConfigError(
            "puzzles.file has boards for training: give the boards to play by --puzzles FILE"
        )
    padded = [*labels, *[""] * (len(texts) - len(labels))]
    models = [
        parse_model(text, overrides, label=label) for text, label in zip(texts, padded, strict=True)
    ]
    for number, model in enumerate(models):
        if model.label in [other.label for other in models[:number]]:
            raise ConfigError(f"two models have the name {model.label}: give each a --name")
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


def pieces_of(model: PathOrUri, config: TrainConfig) -> ChatPieces:
    """Return what a model's conversations are written with: a run's as it was trained with.

    Raises:
        ModelError: there is no model, or its chat template is missing, broken or not append-only.
    """
    chosen = "" if is_run(model) else config.policy.chat_template
    return read_chat_pieces(sound_model(model_directory(model), with_weights=False), chosen)


def _limits(longest: int) -> tuple[str, ...]:
    """Return the paper's token budgets, at most the model's ``longest`` conversation."""
    response = min(_RESPONSE_TOKENS, max(longest - _PROMPT_TOKENS, 1))
    return (
        f"rollout.prompt_tokens={min(_PROMPT_TOKENS, longest)}",
        f"rollout.response_tokens={response}",
        f"rollout.max_answer_tokens={response}",
    )


def _with_tokens_per_turn(config: TrainConfig, kind: Kind, source: str) -> TrainConfig:
    """Return a configuration in which every turn may use the budget of an episode."""
    rollout = config.rollout
    if not config.evaluation.tokens_per_turn:
        return config
    per_turn = rollout.response_tokens
    longest = rollout.prompt_tokens + _MOST_TURNS * (rollout.prompt_tokens + per_turn)
    if kind is Kind.ENGINE:
        longest = min(longest, model_limit(_files_of(source)) or longest)
    response = max(longest - rollout.prompt_tokens, 1)
    budgets = replace(rollout, max_answer_tokens=per_turn, response_tokens=response)
    return replace(config, rollout=budgets)


def _files_of(source: str) -> Path:
    """Return a local directory with a model's files; without its weights if those are elsewhere."""
    return sound_model(model_directory(path_or_uri(source)), with_weights=False)


def _longest_conversation(source: str) -> int:
    """Return the most tokens of a conversation, at most the paper's."""
    wanted = _PROMPT_TOKENS + _RESPONSE_TOKENS
    longest = model_limit(_files_of(source)) or wanted
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
