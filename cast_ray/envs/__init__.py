"""Games and benchmarks behind one protocol, played through text or arrays."""
