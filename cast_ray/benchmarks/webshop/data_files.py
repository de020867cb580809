"""Where the original's data files lie, and what they are called."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from cast_ray.benchmarks.webshop.json_fields import JsonObject, json_object
from cast_ray.errors import EnvironmentSetupError, PuzzleError

DATA_VARIABLE = "WEBSHOP_DATA"
FULL = ("items_shuffle.json", "items_ins_v2.json")
SMALL = ("items_shuffle_1000.json", "items_ins_v2_1000.json")
"""Products, and attributes by product: of all 1.18 million, and of 1,000 of them."""
INSTRUCTIONS = "items_human_ins.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFiles:
    """The three files of one catalogue."""

    products: Path
    """An array of products."""
    attributes: Path
    """By product: its attributes, and the made instruction of some."""
    instructions: Path
    """By product: what people wrote."""

    def key(self) -> str:
        """Return 16 hexadecimal digits that change whenever one of the files does.

        By name, size and time of the last change: reading gigabytes to name an index would take
        longer than many an evaluation.

        Raises:
            EnvironmentSetupError: a file is gone.
        """
        facts: list[tuple[str, int, int]] = []
        for path in (self.products, self.attributes, self.instructions):
            try:
                status = path.stat()
            except OSError as error:
                raise EnvironmentSetupError(
                    f"{path} cannot be read ({error.strerror}): set {DATA_VARIABLE} to a folder "
                    "that holds it"
                ) from error
            facts.append((path.name, status.st_size, status.st_mtime_ns))
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def find_data_files() -> DataFiles:
    """Return the data files in the folder that ``WEBSHOP_DATA`` names; the full set goes first.

    Raises:
        EnvironmentSetupError: the variable is not set, or the folder lacks a file.
    """
    named = os.environ.get(DATA_VARIABLE)
    wanted = (
        f"{INSTRUCTIONS} and either {' and '.join(FULL)} (all products) or {' and '.join(SMALL)} "
        "(1,000 of them), which setup.sh of the repository princeton-nlp/WebShop fetches"
    )
    if not named:
        raise EnvironmentSetupError(
            f"WebShop's data are not here: set {DATA_VARIABLE} to a folder with {wanted}"
        )
    folder = Path(named)
    pairs = [pair for pair in (FULL, SMALL) if all((folder / name).is_file() for name in pair)]
    if not pairs or not (folder / INSTRUCTIONS).is_file():
        raise EnvironmentSetupError(
            f"the folder {folder}, which {DATA_VARIABLE} names, lacks files: put there {wanted}"
        )
    products, attributes = pairs[0]
    return DataFiles(
        products=folder / products,
        attributes=folder / attributes,
        instructions=folder / INSTRUCTIONS,
    )


def read_by_asin(path: Path) -> JsonObject:
    """Return a file that is one JSON object with a member a product.

    Raises:
        PuzzleError: the file cannot be read or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PuzzleError(f"{path} cannot be read as JSON ({error}): fetch it anew") from error
    return json_object(value, str(path))
