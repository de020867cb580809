"""A run as an object: the builder, ``Algorithm``, callbacks, the policy, copies of runs."""
