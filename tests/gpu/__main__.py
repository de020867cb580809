"""``python -m tests.gpu [learner] [engine] [train]``: run these parts, all by default.

``learner`` needs torch, DeepSpeed and transformers; ``engine`` vLLM as well; ``train`` all of it,
with Ray, and a model directory in $MODEL (SmolLM2-135M; without it a small one is made).
"""

from __future__ import annotations

import sys
from importlib import import_module

from tests.gpu.common import run

PARTS = ("learner", "engine", "train")

if __name__ == "__main__":
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := set(wanted) - set(PARTS):
        sys.exit(f"no part {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    for part in wanted:
        import_module(f"tests.gpu.{part}")
    sys.exit(not run(wanted))
