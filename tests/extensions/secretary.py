"""The secretary problem of TextArena: five values come one by one; take the largest."""

from cast_ray.envs.textarena import TextArena


class Secretary(TextArena):
    """The reward is 1 for the largest value, else 0, at the end."""

    env_id, turn_budget = "Secretary-v0", 6
    moves = ("[accept]", "[continue]")
