"""The trained agent as a service on Ray Serve."""
