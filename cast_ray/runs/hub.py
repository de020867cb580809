"""Models of a Hugging Face hub: a name, the commit that it stands for, this host's copy.

A name is looked up once, where it enters; from there on the model goes by its commit
(``owner/name@commit``), which is the same on every host. Copies lie in huggingface_hub's own cache;
its variables apply: ``HF_ENDPOINT``, ``HF_HOME``, ``HF_TOKEN``, ``HF_HUB_OFFLINE``.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from cast_ray.config.train import TrainConfig
from cast_ray.errors import ModelError, StorageError
from cast_ray.files import refusals_named
from cast_ray.runs.uris import COMMIT, hub_name

_TEXTS = ("*.json", "*.jinja", "merges.txt", "vocab.txt", "tokenizer.model")
_WEIGHTS = "*.safetensors"
_OTHERS = ("*/*", "consolidated*")
"""The same weights in other forms."""


def pinned(text: str, *, stored: str = "", with_weights: bool = True) -> str:
    """Return a hub's model by its commit, downloaded; any other text as it is.

    An existing path wins over a hub's model. Without a revision an existing folder wins, too: a
    mistyped path below it is not looked for at the hub.

    Args:
        text: what the user gave.
        stored: what a resumed run has; it stays if it is that model and ``text`` has no commit.
        with_weights: False skips the weights.

    Raises:
        ModelError: the hub has no such model or revision, or not for this user.
        StorageError: the hub cannot be reached, and its cache has no complete copy.
        EnvironmentSetupError: the cache cannot be written.
    """
    name, revision = hub_name(text)
    if not name or Path(text).exists() or (not revision and Path(text).parent.is_dir()):
        return text
    if hub_name(stored)[0] == name and not COMMIT.fullmatch(revision):
        return stored
    return f"{name}@{download(name, revision, with_weights=with_weights).name}"


def with_commits(
    config: TrainConfig, *, stored: TrainConfig | None = None, with_weights: bool = True
) -> TrainConfig:
    """Return a configuration with its models as ``pinned`` returns them; raises like it."""
    before = stored.models if stored else {}
    return config.with_values(
        {
            key: pinned(name, stored=before.get(key, ""), with_weights=with_weights)
            for key, name in config.models.items()
        }
    )


def download(name: str, revision: str, *, with_weights: bool) -> Path:
    """Return this host's copy of a hub's model; only what is missing is downloaded.

    Raises:
        ModelError, StorageError, EnvironmentSetupError: as for ``pinned``.
    """
    # Imported here: few runs need it, and it reads its environment at import.
    from httpx2 import HTTPError
    from huggingface_hub import constants, errors, snapshot_download
    from tqdm.auto import tqdm

    place, cache = constants.ENDPOINT, Path(constants.HF_HUB_CACHE)
    # On a terminal, unlike the hub's own class, whose bars cast-ray turns off with all others.
    bars: Any = functools.partial(tqdm, disable=None)  # Any: a class is asked for
    try:
        copy = snapshot_download(
            name,
            revision=revision or None,
            allow_patterns=[*_TEXTS, _WEIGHTS] if with_weights else [*_TEXTS],
            ignore_patterns=[*_OTHERS],
            tqdm_class=bars,
        )
    except errors.GatedRepoError:
        raise ModelError(f"{name} is gated: accept its terms at {place}, set HF_TOKEN") from None
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        raise ModelError(
            f"there is no directory {name} here, and at {place} no model of that name, or a "
            "private one: check the name, or set HF_TOKEN"
        ) from None
    except errors.RevisionNotFoundError:
        raise ModelError(f"{name} has no revision {revision} at {place}: give another") from None
    except (HTTPError, OSError, RuntimeError) as error:  # the last is hf_xet's
        if isinstance(error, OSError) and error.errno:
            with refusals_named(cache):
                raise
        cause = error.__cause__ or error
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else " ".join(str(cause).split())
        raise StorageError(
            f"there is no directory {name} here and no complete copy in {cache}, and {place} does "
            f"not give it ({why}): download it elsewhere (hf download {name}), give the directory"
        ) from None
    return Path(copy)
