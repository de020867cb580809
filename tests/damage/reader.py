"""The process that reads files for ``Reading``: paths in, outcomes out, one JSON list per line."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import traceback
from hashlib import blake2b
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from cast_ray.errors import CastRayError
from tests.damage.kinds import KINDS

MAX_SECONDS = 60
"""Of one file, the solvers' start included; SIGALRM then ends the process."""
MAX_BYTES = 3 * 2**30
"""Of address space, beyond what the process has at its start."""


def outcome(kind_name: str, path: Path, *, is_deep: bool) -> tuple[str, str]:
    """Return how reading ends, and a digest of the value, the message or the traceback."""
    kind = KINDS[kind_name]
    digest, refusals = "", []
    for reader in (kind.read, *(kind.others if is_deep else ())):
        try:
            value = reader(path)
        except CastRayError as error:
            refusals.append(str(error))
        except Exception:
            return "raised", traceback.format_exc()
        else:
            digest = digest or blake2b(_bytes_of(value)).hexdigest()
    return ("refused", refusals[0]) if refusals else ("read", digest)


def _bytes_of(value: Any) -> bytes:
    """Return equal bytes for equal values; NaN equals itself. Any: what a reader returns."""
    if isinstance(value, pa.Table):
        value = (value.schema, value.to_pydict())
    elif isinstance(value, pl.DataFrame):
        value = (value.schema, value.to_dict(as_series=False))
    return repr(value).encode(errors="surrogatepass")


def main() -> None:
    """Answer until there is no more to read; what readers print goes to standard error."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MAX_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        kind, path, is_deep = json.loads(line)
        signal.alarm(MAX_SECONDS)
        found = outcome(kind, Path(path), is_deep=is_deep)
        signal.alarm(0)
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
