"""The SQLite file of a catalogue: made once of the data files, kept in the user's cache."""

from __future__ import annotations

import fcntl
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from cast_ray.benchmarks.webshop.data_files import DataFiles, read_by_asin
from cast_ray.benchmarks.webshop.goals import (
    HUMAN,
    SEED,
    SYNTHETIC,
    Goal,
    HumanSource,
    SyntheticSource,
    human_goals,
    synthetic_goals,
)
from cast_ray.benchmarks.webshop.json_array import elements_of
from cast_ray.benchmarks.webshop.json_fields import JsonObject, items, json_object, text, texts
from cast_ray.benchmarks.webshop.products import Product, is_listed, read_product
from cast_ray.errors import EnvironmentSetupError, PuzzleError
from cast_ray.files import refusals_named, written_aside
from cast_ray.kernel_cache import user_cache

FORMAT = 1
"""Raised with every change of what the file holds, so that files of the past are not read."""
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
    """Return the file of a catalogue, made now if it is not there. Other processes wait for it.

    Raises:
        EnvironmentSetupError: a data file is gone, or the cache cannot be written.
        PuzzleError: a data file is broken.
    """
    folder = user_cache() / "cast_ray"
    path = folder / f"webshop-{FORMAT}-{files.key()}.sqlite"
    if not path.exists():
        with _locked(path):
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
    """Return what is searched of a product: title, description, first feature and options."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options)
    words = " ".join([product.title, product.description, *product.bullets[:1], options]).lower()
    # JSON can hold half a surrogate pair, UTF-8 cannot.
    return words.encode(errors="replace").decode()


@dataclass(slots=True)
class _Sources:
    """What goals are made of, gathered while products pass by."""

    files: DataFiles
    human: list[HumanSource] = field(default_factory=list[HumanSource])
    synthetic: list[SyntheticSource] = field(default_factory=list[SyntheticSource])
    _attributes: JsonObject = field(init=False)
    _instructions: JsonObject = field(init=False)

    def __post_init__(self) -> None:
        self._attributes = read_by_asin(self.files.attributes)
        self._instructions = read_by_asin(self.files.instructions)

    def attributes(self, asin: str) -> tuple[str, ...]:
        """Return a product's own attributes; none where the file has none of it."""
        where = f"{self.files.attributes}, {asin}"
        record = json_object(self._attributes.get(asin, {}), where)
        return texts(record, "attributes", where) if "attributes" in record else ()

    def add(self, product: Product) -> None:
        """Note what the goals of a product are made of, if it has any."""
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
    """Say in one sentence that a file cannot be written, if SQLite finds so."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise EnvironmentSetupError(
            f"{path} cannot be written ({error}): free some space, or name another place in "
            "XDG_CACHE_HOME"
        ) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep this host's other processes and threads from making the same file; they wait."""
    with refusals_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path.with_suffix(".lock"), "w")  # noqa: SIM115  closed below
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
