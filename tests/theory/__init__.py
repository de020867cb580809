"""The paper's theorem on games that are small enough to enumerate: no sampling, no network.

A policy is a table of logits over states and actions; an action is one token. Every expectation is
a sum over all possible episodes, so both sides of an equation agree to rounding or not at all.
Credit is computed by ``cast_ray.algorithms.advantages``, the functions that training calls.

Letters: ``S`` states, ``A`` actions, ``H`` turns of the horizon. Solvers come as functions.
"""
