"""The peek-free Minesweeper solver and its exact mine probabilities."""
