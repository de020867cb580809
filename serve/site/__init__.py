"""The HTTP service: the agent, the solver, the games and the browser of runs, without Ray.

What it needs from a cluster (a policy that generates, an analyst that solves) is passed in.
"""
