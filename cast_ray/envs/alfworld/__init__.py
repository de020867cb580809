"""ALFWorld's tasks, played through the package of that name."""
