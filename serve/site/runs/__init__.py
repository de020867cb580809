"""Run directories below one root, read for people who browse them; never written or executed."""
