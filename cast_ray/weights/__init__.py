"""A version of the weights on its way from the learner to the engines."""
