"""Models of a hub by name: this project's own hub on the loopback, asked by real processes.

In processes of their own, because huggingface_hub reads its environment when it is imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cast_ray.runs.hub import pinned
from cast_ray.runs.uris import Uri, hub_name, path_or_uri
from tests.support.hub import Hub, loopback_hub
from tests.support.scripted import build_test_policy

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TEXTS = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
}
FIND = """
import sys
from cast_ray.errors import CastRayError
from cast_ray.runs.hub import pinned
from cast_ray.runs.remote_directories import sound_model
try:
    name = pinned(sys.argv[1], with_weights=len(sys.argv) < 3)
    print(name, sound_model(name, with_weights=len(sys.argv) < 3))
except CastRayError as error:
    print(type(error).__name__, error)
"""
EVALUATE = """
import sys
from cast_ray.evaluation.models import parse_model
model = parse_model(sys.argv[1], [])
print(model.label, *model.sources, *model.locations)
"""
CHECK = """
import sys
from cast_ray.cli.main import app
app(["model", "check", sys.argv[1], "--json"])
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model directory with what must never be downloaded."""
    directory = tmp_path_factory.mktemp("policy")
    build_test_policy(directory)
    for name in ("pytorch_model.bin", "modeling.py", "consolidated.safetensors", "onnx/model.json"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(b"never")
    return directory


@pytest.fixture
def hub() -> Iterator[Hub]:
    with loopback_hub() as hub:
        yield hub


class Asker:
    """A host with a cache of its own."""

    def __init__(self, hub: Hub, folder: Path) -> None:
        self.environment = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "cache")}
        self.folder = folder

    def ask(self, *arguments: str, code: str = FIND, **environment: str) -> str:
        """Return the line that a process prints which is given these arguments."""
        run = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, **self.environment, **environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert run.returncode == 0, run.stderr
        [line] = run.stdout.splitlines()
        return line


@pytest.fixture
def asker(hub: Hub, tmp_path: Path) -> Asker:
    return Asker(hub, tmp_path)


def test_name_becomes_a_commit_and_only_weights_and_texts_come(
    hub: Hub, asker: Asker, policy: Path
) -> None:
    commit = hub.push("owner/tiny", policy)

    name, copy = asker.ask("owner/tiny").split()

    assert name == f"owner/tiny@{commit}"
    assert hub.downloaded() == {*TEXTS, "model.safetensors"}
    weights = Path(copy, "model.safetensors").read_bytes()
    assert weights == (policy / "model.safetensors").read_bytes()


def test_download_shows_its_progress_on_a_terminal(hub: Hub, asker: Asker, policy: Path) -> None:
    """Although the bars of libraries are off, as ``cast-ray`` sets them."""
    hub.push("owner/tiny", policy)
    reader, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 100))
    off = {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", FIND, "owner/tiny"],
        env={**os.environ, **asker.environment, **off},
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    with suppress(OSError):  # a terminal that nobody writes to any more
        while data := os.read(reader, 2**12):
            shown += data
    os.close(reader)
    assert process.wait(timeout=60) == 0
    assert f" {len(TEXTS) + 1}/{len(TEXTS) + 1} " in shown.decode()


def test_commit_stays_when_the_model_changes_and_is_not_downloaded_again(
    hub: Hub, asker: Asker, policy: Path
) -> None:
    commit = hub.push("owner/tiny", policy)
    first = asker.ask("owner/tiny")
    newer = hub.push("owner/tiny", policy)
    hub.requests.clear()

    assert asker.ask(f"owner/tiny@{commit}") == first
    assert not hub.downloaded()
    assert asker.ask("owner/tiny@main").split()[0] == f"owner/tiny@{newer}"


def test_tokenizer_comes_without_weights(hub: Hub, asker: Asker, policy: Path) -> None:
    hub.push("owner/tiny", policy)

    asker.ask("owner/tiny", "without weights")

    assert hub.downloaded() == TEXTS


def test_host_that_is_offline_takes_what_it_has_and_says_what_it_lacks(
    hub: Hub, asker: Asker, policy: Path
) -> None:
    hub.push("owner/tiny", policy)
    hub.push("owner/half", policy)
    found = asker.ask("owner/tiny")
    asker.ask("owner/half", "without weights")
    hub.requests.clear()

    assert asker.ask("owner/tiny", HF_HUB_OFFLINE="1") == found
    for name in ("owner/other", "owner/half"):
        said = asker.ask(name, HF_HUB_OFFLINE="1")
        facts = (name, "HF_HUB_OFFLINE", asker.environment["HF_HOME"], "hf download", "directory")
        assert said.startswith("StorageError ") and all(fact in said for fact in facts)
    assert not hub.requests


def test_hub_that_does_not_answer_is_named(asker: Asker) -> None:
    nobody = "http://127.0.0.1:9"
    said = asker.ask("owner/tiny", HF_ENDPOINT=nobody)
    assert (
        said.startswith("StorageError ")
        and "owner/tiny" in said
        and nobody in said
        and "refused" in said
    )


def test_model_that_the_hub_does_not_have_or_give_is_named(
    hub: Hub, asker: Asker, policy: Path
) -> None:
    hub.push("owner/tiny", policy)
    hub.push("owner/gated", policy)
    hub.gated.add("owner/gated")
    for name, facts in {
        "owner/none": ("owner/none", "directory", "HF_TOKEN"),
        "owner/tiny@v2": ("owner/tiny", "v2"),
        "owner/gated": ("owner/gated", "gated", "terms", "HF_TOKEN"),
    }.items():
        said = asker.ask(name)
        assert said.startswith("ModelError "), said
        assert all(fact in said for fact in (*facts, hub.endpoint)), said


def test_cache_that_cannot_be_written_is_named(hub: Hub, asker: Asker, policy: Path) -> None:
    hub.push("owner/tiny", policy)
    (asker.folder / "file").touch()
    said = asker.ask("owner/tiny", HF_HOME=str(asker.folder / "file"))
    assert said.startswith(f"EnvironmentSetupError {asker.folder / 'file' / 'hub'} ")


def test_evaluation_shows_the_name_and_keeps_the_commit(
    hub: Hub, asker: Asker, policy: Path
) -> None:
    commit = hub.push("owner/tiny", policy)

    label, source, location = asker.ask("owner/tiny", code=EVALUATE).split()

    assert (label, source) == ("tiny", f"owner/tiny@{commit}")
    assert location == f"hf://{source}"


def test_model_check_takes_a_name(hub: Hub, asker: Asker, policy: Path) -> None:
    hub.push("owner/tiny", policy)

    report = json.loads(asker.ask("owner/tiny", code=CHECK))

    assert report["verdict"] == "plays, can be trained"


@pytest.mark.parametrize(
    "text", ["owner/tiny", "./runs/mine", "runs/mine", "mine", "a/b/c", "/a/b", "s3://a/b", "../b"]
)
def test_path_that_exists_and_what_is_no_name_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Also ``runs/mine``, which is not there: the folder ``runs`` is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner/tiny").mkdir(parents=True)
    (tmp_path / "runs").mkdir()
    assert pinned(text) == text


def test_directory_wins_over_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"owner/tiny@{COMMIT}"
    assert path_or_uri(text) == Uri(f"hf://{text}")
    (tmp_path / text).mkdir(parents=True)
    assert path_or_uri(text) == Path(text)
    assert pinned(text) == text


def test_resumed_run_keeps_its_commit_unless_another_is_given() -> None:
    stored = f"owner/gone@{COMMIT}"
    assert pinned("owner/gone", stored=stored) == stored
    assert pinned("owner/gone@main", stored=stored) == stored


def test_commit_is_the_same_text_wherever_it_goes() -> None:
    uri = path_or_uri(f"owner/tiny@{COMMIT}")
    assert isinstance(uri, Uri)
    assert path_or_uri(str(uri.absolute())) == uri
    assert (uri.name, uri.hub_model) == ("tiny", ("owner/tiny", COMMIT))
    assert Uri("hf://datasets/owner/name/file@1").hub_model is None
    assert hub_name("hf://owner/tiny@v1") == ("owner/tiny", "v1")
