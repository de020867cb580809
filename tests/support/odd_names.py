"""A folder's name that URIs, patterns, shells, YAML and rich read as something else."""

ODD_NAME = "a run [1] #2 50% :x: ü"
