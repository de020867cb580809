"""The paper's theorem on games that are small enough to enumerate: no sampling, no network.

A policy is a table of logits over states and actions; an action is one token. Every expectation is
a sum over all that can happen, so both sides of an equation can be compared to rounding. Credit is
computed by ``cast_ray.algorithms.advantages``, the functions that training calls, never by a copy.

Letters: ``S`` states, ``A`` actions, ``H`` turns of the horizon. Solvers come as functions.
"""
