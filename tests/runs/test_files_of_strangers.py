"""A run that a stranger made, read by its URI or from a copy: it plants and reveals nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cast_ray.config.load import load_config, save_config
from cast_ray.errors import CastRayError, ConfigError, StorageError
from cast_ray.files import is_below
from cast_ray.runs.object_store import StoredFile
from cast_ray.runs.remote_run import readable_copy
from cast_ray.runs.uris import Uri
from serve.site.runs.browser import RunBrowser


@contextmanager
def index(links: list[str]) -> Iterator[Uri]:
    """Serve a folder ``run`` whose page has these links; every file of it says ``planted``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_page = self.path.rstrip("/") == "/run"
            shown = "".join(f'<a href="{link}">file</a>' for link in links)
            body = (shown if is_page else "planted").encode()
            self.send_response(200)
            self.send_header("content-type", "text/html" if is_page else "text/plain")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Uri(f"http://127.0.0.1:{server.server_port}/run")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("link", ["../../../planted", "a/../../../../planted", "a//planted"])
def test_a_listing_plants_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    monkeypatch.setenv("CAST_RAY_CACHE", str(tmp_path / "cache"))
    refused = pytest.raises(StorageError, match="leads out of its folder")
    with index(["config.yaml", link]) as uri, refused:
        readable_copy(uri)
    assert not list(tmp_path.rglob("*planted*"))


@pytest.mark.parametrize("name", ["", "/etc/x", "..", "a/../b", "./a", "a//b", "a\0", "a\\b", "a/"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    assert not is_below(name)
    with pytest.raises(StorageError):
        StoredFile(name=name, num_bytes=1, changed_ns=0)


@pytest.mark.parametrize("name", ["a", "a/b.parquet", "..a/b..", "a b/ü"])
def test_an_ordinary_name_is_taken(name: str) -> None:
    assert is_below(name)


@pytest.mark.parametrize(
    "text", ["${oc.env:SECRET}", r"\${oc.env:SECRET}", r"\\${oc.env:SECRET}", "a${oc.env:SECRET}b"]
)
def test_an_interpolation_in_a_stored_configuration_is_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    file = written(tmp_path, f"'{text}'")
    assert load_config(file, [], is_stored=True).run_dir == text
    shown = RunBrowser(tmp_path).run("run")
    assert shown.config["run_dir"] == text and "hunter2" not in str(shown)


def test_an_interpolation_in_a_file_of_one_s_own_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNS", "mine")
    assert load_config(written(tmp_path, "${oc.env:RUNS}/a"), []).run_dir == "mine/a"


@pytest.mark.parametrize(
    "value",
    [
        "[" * 3000,
        "[" * 3000 + "]" * 3000,
        "9" * 5000,
        "&a [x]\nseed: *a",
        "x" * 2**20,
        "\0",
        "\x85",
    ],
)
def test_a_configuration_that_cannot_be_read_hides_no_other_run(tmp_path: Path, value: str) -> None:
    written(tmp_path, "x", name="sound")
    file = written(tmp_path, value)
    with pytest.raises(ConfigError, match=str(file)):
        load_config(file, [], is_stored=True)
    found = {run.name: run.problem for run in RunBrowser(tmp_path).runs()}
    assert found["sound"] is None
    assert found["run"] is not None


def test_the_tier_of_a_stored_configuration_is_no_file(tmp_path: Path) -> None:
    """Its message would show the keys of any YAML file of this machine."""
    (tmp_path / "private.yaml").write_text("password: x")
    file = written(tmp_path, f"x\ntier: {tmp_path / 'private.yaml'}")
    with pytest.raises(CastRayError) as refused:
        load_config(file, [], is_stored=True)
    assert "password" not in str(refused.value)


def written(folder: Path, run_dir: str, *, name: str = "run") -> Path:
    """Write a configuration with this value of ``run_dir`` and return the file."""
    file = folder / name / "config.yaml"
    save_config(load_config(None, ["run_dir=HERE"]), file)
    lines = file.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not (line.startswith("tier:") and "tier:" in run_dir)]
    file.write_text("".join(kept).replace("HERE", run_dir))
    return file
