"""Exact solvers of Rush Hour."""
