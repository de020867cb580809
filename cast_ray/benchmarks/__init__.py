"""Benchmarks that are played as games are, to see what a policy has learned beside them."""
