"""What is played in text or in arrays: games and benchmarks behind one protocol."""
