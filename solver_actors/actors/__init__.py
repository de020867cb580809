"""Ray actors that play episodes and answer for solvers, and their pool."""
