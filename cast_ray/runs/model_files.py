"""The files of a model directory, checked without loading them: missing, cut off, or no weights.

Needs nothing of cast_ray: the module is sent to nodes that may lack it or have another version.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from cast_ray.files import read_json

_POINTER = b"version https://git-lfs"
_MOST_OF_A_POINTER = 1024
"""Bytes, by the specification of git-LFS."""
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_OPTIONAL = ("generation_config.json", "tokenizer.json", "tokenizer_config.json")


def model_fault(directory: Path, *, with_weights: bool = True, is_trained: bool = False) -> str:
    """Return what is wrong with a model directory, as the rest of a sentence; empty = nothing.

    Args:
        directory: in the format of Hugging Face.
        with_weights: whether its weights must be there.
        is_trained: whether a learner loads it, which cannot take quantised weights.
    """
    if not directory.is_dir():
        return "is not a directory"
    if not any(directory.iterdir()):
        return "is empty (no config.json)"
    try:
        config = _json(directory / "config.json")
        for file in (directory / name for name in _OPTIONAL):
            if file.is_file():
                _json(file)
        if is_trained and (found := config.get("quantization_config")):
            method = found.get("quant_method") if isinstance(found, dict) else found
            return f"has weights quantised by {method} (config.json), which a learner cannot train"
        if with_weights:
            num_values(directory)
    except OSError as error:
        return f"has no readable {Path(error.filename or directory).name} ({error.strerror})"
    except ValueError as fault:
        return str(fault)
    return ""


def model_digest(directory: Path) -> str:
    """Return what identifies weights, tokenizer and chat template of a model, wherever it lies."""
    from blake3 import blake3  # here: nodes that get this module may lack it

    digest = blake3(max_threads=blake3.AUTO)
    texts = (*directory.glob("tokenizer*.json"), *directory.glob("chat_template*"))
    for file in sorted((*weight_files(directory), *texts)):
        digest.update(f"{file.name} {file.stat().st_size} ".encode())
        digest.update_mmap(file)
    return digest.hexdigest()


def weight_files(directory: Path) -> list[Path]:
    """Return the files with a model's weights: those that its index names, or all.

    Raises:
        ValueError: there are none; the text is the rest of a sentence about the directory.
        OSError: the index cannot be read.
    """
    if (directory / _INDEX).is_file() and not (directory / _WEIGHTS).is_file():
        shards = _json(directory / _INDEX).get("weight_map")
        if not isinstance(shards, dict):
            raise ValueError(f"has an {_INDEX} without a weight_map")
        return [directory / name for name in sorted({str(name) for name in shards.values()})]
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise ValueError("has no safetensors weights")
    return files


def num_values(directory: Path) -> int:
    """Return how many values a model's weights have; every file must be as long as it says.

    Raises:
        ValueError: a file is damaged; the text is the rest of a sentence about the directory.
        OSError: a file is missing or cannot be read.
    """
    from safetensors import SafetensorError, safe_open  # here: a node without cast_ray may lack it

    found = 0
    for file in weight_files(directory):
        try:
            # Opened here too, because safe_open does not say which file is missing.
            with open(file, "rb"), safe_open(file, framework="np") as weights:
                parts = map(weights.get_slice, weights.keys())
                found += sum(math.prod(part.get_shape()) for part in parts)
        except SafetensorError as error:
            raise _damage(file, error) from None
    return found


def _json(file: Path) -> dict[str, Any]:
    try:
        found = read_json(file)
    except ValueError as error:
        raise _damage(file, error) from None
    if not isinstance(found, dict):
        raise _damage(file, "not a JSON object")
    return found


def _damage(file: Path, reason: object) -> ValueError:
    """Return the error that says what a file is which cannot be read."""
    content = file.read_bytes() if file.stat().st_size < _MOST_OF_A_POINTER else b""
    if content.startswith(_POINTER):
        return ValueError(f"has a git-LFS pointer in place of {file.name} (run git lfs pull there)")
    size = file.stat().st_size
    return ValueError(f"has a damaged or cut-off {file.name} ({size} bytes: {reason!s:.300})")
