"""Benchmarks of this machine, called by ``cast-ray bench`` in a checkout."""
