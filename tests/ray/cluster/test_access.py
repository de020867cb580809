"""Who can reach what our commands start on one machine: its sockets, its folder, its token."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cast_ray.cluster.access import keep_token_private, make_token
from cast_ray.numba_cache import user_cache
from tests.support.listening import OPEN_TO_ALL, without_cluster

pytestmark = pytest.mark.ray

SECURITY = Path(__file__).parents[3] / "SECURITY.md"
# As our commands do: Ray, Serve with its proxy and a replica, the stores and the groups of a
# learner and of a broadcast. Then the requests of another host.
START = """
import json, os, sys
from cast_ray.cli import main

def start(**options):
    import grpc, ray
    from ray import serve as ray_serve
    from cast_ray.cluster.session import start_ray
    from cast_ray.learner.actor import LearnerActor, as_actor_class
    from cast_ray.learner.deepspeed_setup import join_ranks
    from cast_ray.weights.group import BroadcastGroup, open_store
    from serve.client.applications import start_serve
    from tests.support.listening import open_to_all
    from tests.support.ports import free_port

    start_ray(num_cpus=2, object_store_bytes=100 * 2**20)
    start_serve({"host": "127.0.0.1", "port": free_port()})
    ray_serve.run(ray_serve.deployment(lambda: "here").options(name="app").bind())
    rank = as_actor_class(LearnerActor).remote(None, rank=0, world_size=1)
    host, port = ray.get(rank.open_rendezvous.remote(), timeout=120)
    join_ranks(0, 1, f"tcp://{host}:{port}", 60)
    broadcast = BroadcastGroup(open_store(host), rank=0, world_size=1, timeout_s=60)
    found = open_to_all(os.getpid())
    token = open(os.path.expanduser("~/.ray/auth_token")).read()

    def answers(port, metadata):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary("/ray.serve.ASGIService/HandleRequest")
            try:
                call(b"", metadata=metadata, timeout=60)
            except grpc.RpcError as error:
                return error.code().name

    port, *_ = found["ray::ServeReplica"]
    print(json.dumps({
        "node": host,
        "open": sorted(found),
        "without": answers(port, ()),
        "with": answers(port, (("authorization", f"Bearer {token}"),)),
    }))
    ray.shutdown()

main.app = start
main.main()
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """The home of a user without a token; pytest's own paths are too long for Ray's sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def found(home: Path) -> dict[str, Any]:
    changes = {"HOME": str(home), "RAY_TMPDIR": str(home), "XDG_CACHE_HOME": str(user_cache())}
    done = subprocess.run(
        [sys.executable, "-c", START],
        env=without_cluster(**changes),
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_nothing_listens_at_all_addresses_but_what_the_page_on_security_names(
    found: dict[str, Any],
) -> None:
    assert found["node"] == "127.0.0.1"
    assert set(found["open"]) == OPEN_TO_ALL
    assert set(re.findall(r"`(ray::\w+)`", SECURITY.read_text())) == OPEN_TO_ALL


def test_a_replica_answers_only_those_who_have_the_token(found: dict[str, Any]) -> None:
    assert found["without"] == "UNAUTHENTICATED"
    assert found["with"] not in ("UNAUTHENTICATED", "UNAVAILABLE", "DEADLINE_EXCEEDED")


def test_the_folder_and_the_token_are_their_owners_alone(found: dict[str, Any], home: Path) -> None:
    (session,) = home.glob("cast_ray-*")
    assert (session / "ray" / "session_latest").exists()
    assert session.stat().st_mode & 0o777 == 0o700
    assert (home / ".ray" / "auth_token").stat().st_mode & 0o777 == 0o600


def test_a_token_that_all_could_read_is_kept_and_taken_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    keep_token_private()  # there is none
    make_token()
    file = tmp_path / ".ray" / "auth_token"
    token = file.read_text()
    file.chmod(0o644)
    make_token()
    keep_token_private()
    assert (file.read_text(), file.stat().st_mode & 0o777) == (token, 0o600)
    assert re.fullmatch(r"[0-9a-f]{64}", token)
