"""Models and players on puzzles and benchmarks: attempts, scores, tables."""
