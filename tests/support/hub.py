"""A Hugging Face hub on the loopback: what ``snapshot_download`` asks of one, and no more."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Hub:
    """Models by name, each with its commits; the newest is ``main``."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.gated: set[str] = set()
        self.requests: list[tuple[str, str]] = []
        """Method and path of each."""
        self._commits: dict[str, dict[str, dict[str, bytes]]] = {}

    def push(self, name: str, directory: Path) -> str:
        """Publish a directory as the newest commit of a model; return the commit."""
        files = {
            str(path.relative_to(directory)): path.read_bytes()
            for path in sorted(directory.rglob("*"))
            if path.is_file()
        }
        commits = self._commits.setdefault(name, {})
        commit = hashlib.sha1(f"{name} {len(commits)}".encode()).hexdigest()
        commits[commit] = files
        return commit

    def downloaded(self) -> set[str]:
        """Return the paths of the files whose content was asked for."""
        gets = (path.split("/", 5) for method, path in self.requests if method == "GET")
        return {parts[5] for parts in gets if len(parts) == 6 and parts[3] == "resolve"}

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and content for a path."""
        parts = unquote(path).strip("/").split("/")
        parts = parts[2:] if parts[:2] == ["api", "models"] else parts
        if len(parts) < 4:  # the client asks for more than models
            return 404, {}, b""
        name = "/".join(parts[:2])
        kind, revision, *rest = parts[2:]
        if name not in self._commits:
            return 401, {"X-Error-Code": "RepoNotFound"}, b""
        commits = self._commits[name]
        commit = list(commits)[-1] if revision == "main" else revision
        if commit not in commits:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        files = commits[commit]
        if kind == "revision":
            return 200, {}, json.dumps({"id": name, "sha": commit, "siblings": []}).encode()
        if kind == "tree":
            listed = [
                {"type": "file", "path": path, "size": len(content), "oid": _digest(content)}
                for path, content in files.items()
            ]
            return 200, {}, json.dumps(listed).encode()
        if name in self.gated:
            return 403, {"X-Error-Code": "GatedRepo"}, b""
        content = files["/".join(rest)]
        return 200, {"X-Repo-Commit": commit, "ETag": f'"{_digest(content)}"'}, content


def _digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextmanager
def loopback_hub() -> Iterator[Hub]:
    """Yield a hub that answers until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            hub.requests.append((self.command, path))
            status, headers, content = hub.answer(path)
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
