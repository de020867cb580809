"""What every process of the tests must agree on before Ray is imported for the first time."""

from __future__ import annotations

import os

from cast_ray.kernel_cache import use_kernel_cache

# Ray reads these once, at import; `cast-ray` itself sets the same.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
use_kernel_cache()
