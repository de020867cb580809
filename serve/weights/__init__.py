"""New weights on the engine's side: received, loaded, proved."""
