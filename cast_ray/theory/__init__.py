"""The paper's theorem on games that are small enough to enumerate: no sampling, no network.

A policy is a table of logits over states and actions; an action is one token. Every expectation is
a sum over all that can happen, so both sides of an equation can be compared to rounding. Credit is
computed by ``cast_ray.advantages``, the functions that training runs on, never by a copy of them.

Letters: ``S`` states, ``A`` actions, ``H`` turns of the horizon. Solvers come as functions.
"""
