"""The command line ``cast-ray``."""
