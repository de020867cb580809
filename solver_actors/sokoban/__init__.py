"""Exact solvers of Sokoban."""
