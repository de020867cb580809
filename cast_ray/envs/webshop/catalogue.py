"""The catalogue as an episode reads it: products, goals and search in one SQLite file.

SQLite's full-text search replaces the original's Lucene. Equal to the original: what is
indexed (title, description, first feature, options), 50 results, Porter's stems, queries as any
of their words without Lucene's English stop words. Not equal: BM25 with k1 = 1.2 and b = 0.75
(there 0.9 and 0.4), stop words counted in a product's length, no possessive filter, and products
of equal rank in the order of the catalogue.
"""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

from cast_ray.envs.webshop.goals import Goal
from cast_ray.envs.webshop.products import Product
from cast_ray.errors import EnvironmentSetupError, PuzzleError

NUM_RESULTS = 50
MOST_QUERY_WORDS = 64
"""Further words are not looked for: a query is as long as a policy likes."""
_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there
these they this to was will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Those of Lucene's English analyzer."""

_SEARCH = """
    SELECT asin FROM (
        SELECT rowid AS position, bm25(search) AS score FROM search WHERE search MATCH ?
        ORDER BY score, position LIMIT ?
    ) JOIN products USING (position) ORDER BY score, position
"""


class Catalogue:
    """Read-only; one for each episode. Calls come one after the other, from any thread."""

    def __init__(self, path: Path) -> None:
        """Open a file that ``catalogue_file`` wrote.

        Raises:
            EnvironmentSetupError: it cannot be opened.
        """
        self._path = path
        # The file is never written to, only replaced. So no locks are needed.
        address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        try:
            self._database = sqlite3.connect(address, uri=True, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        newest = self._rows("SELECT COALESCE(MAX(position), -1) FROM products")[0][0]
        self.num_products = int(str(newest)) + 1

    def close(self) -> None:
        """Close the file; also twice."""
        self._database.close()

    def product(self, asin: str) -> Product:
        """Return a product.

        Raises:
            KeyError: there is none of that number.
        """
        rows = self._rows("SELECT record FROM products WHERE asin = ?", asin)
        if not rows:
            raise KeyError(asin)
        return Product(**_stored(str(rows[0][0])))

    def search(self, words: str) -> tuple[str, ...]:
        """Return the products that a query finds, at most 50, the best first."""
        query = match_expression(words)
        if not query:
            return ()
        return tuple(str(asin) for (asin,) in self._rows(_SEARCH, query, NUM_RESULTS))

    def goals(self, kind: str, places: slice) -> list[tuple[int, Goal]]:
        """Return the goals of a kind within a slice of their order, each with its place."""
        rows = self._rows(
            "SELECT place, record FROM goals WHERE kind = ? AND place >= ? AND place < ? "
            "ORDER BY place",
            kind,
            places.start,
            2**62 if places.stop is None else places.stop,
        )
        return [(int(str(place)), Goal(**_stored(str(record)))) for place, record in rows]

    def goal(self, kind: str, place: int) -> Goal:
        """Return one goal.

        Raises:
            PuzzleError: there is none at that place.
        """
        goals = self.goals(kind, slice(place, place + 1))
        if not goals:
            raise PuzzleError(
                f"the catalogue in {self._path} has no {kind} goal {place}: it was made of other "
                "data than the puzzle"
            )
        return goals[0][1]

    def _rows(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: sqlite3.Error) -> EnvironmentSetupError:
        return EnvironmentSetupError(
            f"the catalogue in {self._path} cannot be read ({error}): delete it, and it is made "
            "again"
        )


def match_expression(words: str) -> str:
    """Return the query in SQLite's language: any of the words, each in quotes; empty for none."""
    found = re.findall(r"[^\W_]+", words.lower())
    distinct = list(dict.fromkeys(word for word in found if word not in STOP_WORDS))
    return " OR ".join(f'"{word}"' for word in distinct[:MOST_QUERY_WORDS])


def _stored(record: str) -> dict[str, Any]:
    """Return the fields of a product or goal as ``catalogue_file`` stored them."""
    return {name: _as_tuples(value) for name, value in json.loads(record).items()}


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
