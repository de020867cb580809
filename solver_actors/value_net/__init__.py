"""A value network in the place of a solver."""
