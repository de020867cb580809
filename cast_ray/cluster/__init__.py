"""Ray clusters, their jobs, and this machine."""
