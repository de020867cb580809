"""Boards explained by exact solvers, in this process or in actors."""
