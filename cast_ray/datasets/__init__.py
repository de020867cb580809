"""Puzzle files: built, imported, split and described."""
