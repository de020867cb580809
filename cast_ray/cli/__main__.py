"""``python -m cast_ray.cli``: the command line, in the interpreter that is named."""

from cast_ray.cli.main import main

main()
