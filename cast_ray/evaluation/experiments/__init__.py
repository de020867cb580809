"""Sweeps of runs, and the comparison of their arms."""
