#!/usr/bin/env bash
# Makes the environment: pinned packages, then what the first run would otherwise stop to compile.
# Usage: setup.sh VENV   (PYTHON names the interpreter; EXTRA is cpu or gpu, else as the machine is;
# UNTIL=packages stops before cast_ray itself: a layer of an image that new code leaves as it is)
set -euo pipefail
venv=$1
python=${PYTHON:-python3.11}
command -v "$python" >/dev/null || python=python3
"$python" - <<'CHECK' || { echo "setup: Python 3.11 or 3.12 is needed; set PYTHON=/path/to/python3.11" >&2; exit 1; }
import sys
sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))
CHECK
command -v g++ >/dev/null || { echo "setup: g++ is missing; install it (Debian: apt-get install g++)" >&2; exit 1; }

gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
engine=${EXTRA:-$([ "$gpus" = 0 ] && echo cpu || echo gpu)}
case $engine:$gpus in
  cpu:0) echo "setup: the build for CPUs" ;;
  cpu:*) echo "setup: the build for CPUs, on which the main job runs everywhere; EXTRA=gpu makes the one for your $gpus NVIDIA GPUs" ;;
  gpu:0) echo "setup: the build for NVIDIA GPUs; no GPU is found here, so nothing will train before there is one" ;;
  gpu:*) echo "setup: the build for your $gpus NVIDIA GPUs" ;;
  *) echo "setup: EXTRA is cpu or gpu, got $engine" >&2; exit 1 ;;
esac
# vLLM's build for CPUs is linked to it, and says so only when an engine starts.
[ "$engine" != cpu ] || "$python" -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null || { echo "setup: libnuma is missing; install it (Debian: apt-get install libnuma1)" >&2; exit 1; }
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check)

log=$venv/setup.log
install() { "${pip[@]}" install --progress-bar off -q --no-deps "$@" 2>"$log"; }
failed() {
  why=$(grep -m 1 -E '^ *([A-Za-z]*Error|ERROR|error):' "$log" || tail -n 1 "$log")
  echo "setup: ${why##  } (all of it is in $log); fix it and run the same command again" >&2
  exit 1
}
echo "setup: installing what requirements/$engine.lock names into $venv (a few minutes)"
install --require-hashes -r "requirements/$engine.lock" || failed
if [ "$engine" = cpu ]; then
  # vLLM's build for CPUs, which a third party makes, asks for this build of torch.
  torch=$(sed -n 's/^ *"\(torch==[0-9.]*\)",$/\1+cpu/p' pyproject.toml)
  if ! install "$torch"; then
    echo "setup: $torch from PyTorch's index of builds for CPUs"
    install --index-url https://download.pytorch.org/whl/cpu "$torch" || failed
  fi
fi
[ "${UNTIL:-}" != packages ] || exit 0
install --no-build-isolation -e . || failed
export PATH="$PWD/$venv/bin:$PATH"
echo "setup: compiling what the first run would wait for"
# The build for GPUs may be made before there is one, in an image.
"$venv/bin/cast-ray" doctor --fix || [ "$engine:$gpus" = gpu:0 ]
