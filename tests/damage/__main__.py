"""``python -m tests.damage [RUN] --flips 3000``: a table of bit flips in every kind of file.

RUN is copied. Kinds of which it has no file are taken from a folder that is made up.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from tests.damage.flips import ENDS, flipped
from tests.damage.kinds import KINDS
from tests.damage.made import make_files
from tests.damage.reading import Reading


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.damage", description=__doc__)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--flips", type=int, default=3000, help="of each kind of file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[""], help="kinds whose names begin so")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, Reading() as reading:
        folder, made = Path(place) / "run", Path(place) / "made"
        if given.run:
            shutil.copytree(given.run, folder)
        make_files(made)
        print("| kind | file | " + " | ".join(ENDS) + " |\n|" + " --- |" * (2 + len(ENDS)))
        for kind in KINDS.values():
            if not kind.name.startswith(tuple(given.only)):
                continue
            path = next(iter(sorted(folder.glob(kind.pattern)) + sorted(made.glob(kind.pattern))))
            counts: Counter[str] = Counter()
            examples: dict[str, str] = {}
            for found in flipped(kind, path, reading, flips=given.flips, seed=given.seed):
                counts[found.end] += 1
                if found.end in ("raised", "aborted") or (found.end == "silent" and kind.is_sealed):
                    kind_of_error = found.said.strip().splitlines()[-1].partition(":")[0]
                    examples.setdefault(kind_of_error.partition(" ")[0], found.said)
            shown = " | ".join(str(counts[end]) for end in ENDS)
            where = "" if path.is_relative_to(folder) else " (made up)"
            print(f"| {kind.name} | {kind.pattern}{where} | {shown} |", flush=True)
            for text in examples.values():
                print(text, flush=True)


if __name__ == "__main__":
    main()
