"""The way from an episode to the engines of a run."""
