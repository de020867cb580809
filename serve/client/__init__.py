"""Connects episodes and drivers to the engines of a run."""
