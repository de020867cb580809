"""The SQLite file of a catalogue: built once from the original's data files, in the user's cache.

The products are one JSON array of gigabytes, which is read element by element.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TextIO

from filelock import FileLock

from cast_ray.envs.webshop.goals import (
    HUMAN,
    SEED,
    SYNTHETIC,
    Goal,
    HumanSource,
    SyntheticSource,
    human_goals,
    synthetic_goals,
)
from cast_ray.envs.webshop.products import (
    JsonObject,
    Product,
    is_listed,
    items,
    json_object,
    read_product,
    text,
    texts,
)
from cast_ray.errors import EnvironmentSetupError, PuzzleError
from cast_ray.files import refusals_named, written_aside
from cast_ray.numba_cache import user_cache

_LEAST_READ = 1 << 20
_LONGEST_ELEMENT = 1 << 24
"""Characters. Longer text that is still no JSON counts as broken, instead of reading the rest of a
file of gigabytes into memory."""
_FIRST, _NEXT = re.compile(r"\s*\[\s*"), re.compile(r"\s*,\s*")
"""What stands before the first element of an array, and before each other one."""
_DECODER = json.JSONDecoder()


def elements_of(path: Path) -> Iterator[object]:
    """Yield the elements of the array that a UTF-8 file holds, one after the other.

    Raises:
        PuzzleError: the file cannot be read, or is no JSON array; the element is counted from zero.
    """
    try:
        with open(path, encoding="utf-8") as file:
            yield from _elements(file, path)
    except (OSError, UnicodeDecodeError) as error:
        raise PuzzleError(f"{path} cannot be read ({error}): download it again") from error


def _elements(file: TextIO, path: Path) -> Iterator[object]:
    text, place, number = "", 0, 0
    while True:
        found = _element_at(text, place, _NEXT if number else _FIRST)
        # A number at the end of the text may continue after it.
        if found is None or found[1] == len(text):
            rest = text[place:]
            # The text about doubles, so that a long element is parsed only a few times.
            wanted = max(_LEAST_READ, len(rest)) if len(rest) <= _LONGEST_ELEMENT else 0
            if more := file.read(wanted):
                text, place = rest + more, 0
                continue
            if found is None:
                break
        element, place = found
        yield element
        number += 1
    if text[place:].split() not in ([["]"]] if number else [["[", "]"], ["[]"]]):
        raise PuzzleError(
            f"{path}, element {number}: this is no JSON array, with JSON after [ and every comma, "
            "and nothing after its ]: download it again"
        )


def _element_at(text: str, place: int, before: re.Pattern[str]) -> tuple[object, int] | None:
    """Return the element at a place and where it ends; None if there is no complete one."""
    opening = before.match(text, place)
    try:
        return _DECODER.raw_decode(text, opening.end()) if opening else None
    except json.JSONDecodeError:
        return None


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
    """By product: its attributes, and for some a synthetic instruction."""
    instructions: Path
    """By product: instructions that people wrote."""

    def key(self) -> str:
        """Return 16 hexadecimal digits that change whenever one of the files does.

        From name, size and time of the last change: reading gigabytes would take longer than many
        evaluations.

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
    """Return the data files in the folder that ``WEBSHOP_DATA`` names; the full set has priority.

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
            f"WebShop's data are missing: set {DATA_VARIABLE} to a folder with {wanted}"
        )
    folder = Path(named)
    pairs = [pair for pair in (FULL, SMALL) if all((folder / name).is_file() for name in pair)]
    if not pairs or not (folder / INSTRUCTIONS).is_file():
        raise EnvironmentSetupError(
            f"the folder {folder}, which {DATA_VARIABLE} names, lacks files: put {wanted} there"
        )
    products, attributes = pairs[0]
    return DataFiles(
        products=folder / products,
        attributes=folder / attributes,
        instructions=folder / INSTRUCTIONS,
    )


def read_by_asin(path: Path) -> JsonObject:
    """Return a file that is one JSON object with a member per product.

    Raises:
        PuzzleError: the file cannot be read or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PuzzleError(f"{path} cannot be read as JSON ({error}): download it again") from error
    return json_object(value, str(path))


FORMAT = 2
"""Increased with every change of the file's contents, so that older files are not read."""
NUM_SYNTHETIC_GOALS = 500

_TABLES = """
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE products (position INTEGER PRIMARY KEY, asin TEXT UNIQUE NOT NULL,
        record TEXT NOT NULL);
    CREATE TABLE goals (kind TEXT, place INTEGER, record TEXT NOT NULL,
        PRIMARY KEY (kind, place)) WITHOUT ROWID;
    CREATE VIRTUAL TABLE search USING fts5(words, content='', tokenize='porter unicode61');
"""


def catalogue_file(files: DataFiles) -> Path:
    """Return the file of a catalogue, built first if it does not exist; other processes wait.

    Raises:
        EnvironmentSetupError: a data file is gone, or the cache cannot be written.
        PuzzleError: a data file is broken.
    """
    folder = user_cache() / "cast_ray"
    path = folder / f"webshop-{FORMAT}-{files.key()}.sqlite"
    if not path.exists():
        with refusals_named(path):
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path.with_suffix(".lock")).acquire()
        with lock:
            if not path.exists():
                with written_aside(path) as aside, _database_refusals_named(path):
                    write_catalogue(aside, files)
    return path


def write_catalogue(path: Path, files: DataFiles) -> None:
    """Write all products, their index and the goals to a new file.

    Products are read one at a time; the attributes of all are held in memory.

    Raises:
        PuzzleError: a data file is broken; the message names file and product.
    """
    path.unlink(missing_ok=True)
    random = Random(SEED)
    sources = _Sources(files)
    with closing(sqlite3.connect(path)) as database:
        database.executescript(_TABLES)
        for position, product in enumerate(_products(files.products, sources, random)):
            record = json.dumps(asdict(product))
            database.execute(
                "INSERT INTO products VALUES (?, ?, ?)", (position, product.asin, record)
            )
            database.execute(
                "INSERT INTO search (rowid, words) VALUES (?, ?)", (position, document(product))
            )
            sources.add(product)
        after_prices = random.getstate()
        _write_goals(database, HUMAN, human_goals(sources.human, random))
        random.setstate(after_prices)
        made = synthetic_goals(sources.synthetic, random, num_goals=NUM_SYNTHETIC_GOALS)
        _write_goals(database, SYNTHETIC, made)
        database.execute("INSERT INTO search (search) VALUES ('optimize')")
        database.commit()


def document(product: Product) -> str:
    """Return the text of a product that is searched: title, description, first feature, options."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options)
    words = " ".join([product.title, product.description, *product.bullets[:1], options]).lower()
    # JSON can hold half a surrogate pair, UTF-8 cannot.
    return words.encode(errors="replace").decode()


class _Sources:
    """The sources of goals, collected while products are read."""

    def __init__(self, files: DataFiles) -> None:
        self.files = files
        self.human: list[HumanSource] = []
        self.synthetic: list[SyntheticSource] = []
        self._attributes = read_by_asin(files.attributes)
        self._instructions = read_by_asin(files.instructions)

    def attributes(self, asin: str) -> tuple[str, ...]:
        """Return a product's own attributes; empty if the file has none."""
        where = f"{self.files.attributes}, {asin}"
        record = json_object(self._attributes.get(asin, {}), where)
        return texts(record, "attributes", where) if "attributes" in record else ()

    def add(self, product: Product) -> None:
        """Collect the sources of a product's goals, if it has any."""
        asin, price = product.asin, product.price
        where = f"{self.files.instructions}, {asin}"
        for entry in items(self._instructions, asin, where) if asin in self._instructions else ():
            record = json_object(entry, where)
            self.human.append(
                HumanSource(
                    asin=asin,
                    price=price,
                    instruction=text(record, "instruction", where),
                    attributes=texts(record, "instruction_attributes", where),
                    options=texts(record, "instruction_options", where),
                )
            )
        where = f"{self.files.attributes}, {asin}"
        record = json_object(self._attributes.get(asin, {}), where)
        if record.get("instruction") is not None:
            attributes = texts(record, "instruction_attributes", where)
            if not attributes:
                raise PuzzleError(f"{where}: 'instruction_attributes' is empty: give it one")
            self.synthetic.append(
                SyntheticSource(
                    asin=asin,
                    price=price,
                    instruction=text(record, "instruction", where),
                    attributes=attributes,
                    offers=product.options,
                )
            )


def _products(path: Path, sources: _Sources, random: Random) -> Iterator[Product]:
    """Yield the products of a file that are listed, each number once."""
    seen: set[str] = set()
    for number, element in enumerate(elements_of(path)):
        where = f"{path}, product {number}"
        record = json_object(element, where)
        asin = text(record, "asin", where)
        if not is_listed(asin) or asin in seen:
            continue
        seen.add(asin)
        yield read_product(
            record,
            attributes=sources.attributes(asin),
            where=f"{where} ({asin})",
            random=random,
        )


def _write_goals(database: sqlite3.Connection, kind: str, goals: list[Goal]) -> None:
    database.executemany(
        "INSERT INTO goals VALUES (?, ?, ?)",
        ((kind, place, json.dumps(asdict(goal))) for place, goal in enumerate(goals)),
    )


@contextmanager
def _database_refusals_named(path: Path) -> Iterator[None]:
    """Turn SQLite's error into one sentence if a file cannot be written."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise EnvironmentSetupError(
            f"{path} cannot be written ({error}): free some space, or set XDG_CACHE_HOME to "
            "another folder"
        ) from error
