"""One vLLM engine behind Ray Serve."""
