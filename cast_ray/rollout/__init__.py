"""One episode, from the first observation to its record in tokens."""
