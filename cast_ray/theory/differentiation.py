"""Derivatives to rounding, by complex steps: f(x + ih) = f(x) + ih f'(x) without a difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cast_ray.advantages import Array
from cast_ray.theory.expectations import Numbers

_STEP = 1e-30  # nothing is subtracted, so it can be so small that its square vanishes


def gradient(function: Callable[[Numbers], Any], logits: Array) -> Array:
    """Return the gradient of a number by an array.

    Args:
        function: analytic where it is asked, and able to take complex numbers.
        logits: where; any shape.
    """
    result = np.zeros_like(logits)
    moved = logits.astype(np.complex128)
    for place in np.ndindex(*logits.shape):
        moved[place] += 1j * _STEP
        result[place] = function(moved).imag / _STEP
        moved[place] = logits[place]
    return result
