"""Value networks: masked Double DQN in RLlib, then two stages of potential regression.

The only place in the project that imports ``ray.rllib``.
"""
