"""Replay of a finished run: every episode, every advantage, every update."""
