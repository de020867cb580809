"""The command in surroundings of all kinds: locale, home, proxy, names. A process for each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.listening_proxy import listening_proxy
from tests.support.odd_names import ODD_NAME

ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
COMMAND = ("-P", "-m", "cast_ray.cli")
STATE = '{"game": "sokoban", "board": ["#####", "#PXO#", "#####"]}'
NUMBA_WITHOUT_FOLDER = """
from cast_ray.cli import main

def kernel(**options):
    exec("import numba\\n@numba.njit(cache=True)\\ndef f(): pass")

main.app = kernel
main.main()
"""
NOBODY = """
import os
from cast_ray.cli import main

os.getuid = lambda: 2**31 - 5
main.main()
"""
SHOW_DIRECT = """
from urllib.request import proxy_bypass
from cast_ray.cli import main

hosts = ["127.0.0.1", "localhost", "corp.example", "openai.com"]
main.app = lambda **options: print(*filter(proxy_bypass, hosts))
main.main()
"""


def python(
    *arguments: str | bytes, without: Sequence[str] = (), **changes: str
) -> subprocess.CompletedProcess[bytes]:
    """Run Python in this environment, without some variables and with others."""
    environment = {k: v for k, v in os.environ.items() if k not in without} | changes
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, timeout=300, check=False)


@pytest.mark.parametrize("locale", [ASCII, {"PYTHONIOENCODING": "ascii"}], ids=["C", "console"])
def test_a_console_without_unicode_shows_the_rest(locale: dict[str, str]) -> None:
    done = python(*COMMAND, "sweep", "--help", **locale)
    assert done.returncode == 0, done.stderr.decode()
    assert b"key=a,b," in done.stdout


@pytest.mark.parametrize("locale", [ASCII, {}], ids=["C", "UTF-8"])
def test_a_path_means_the_same_file_in_every_locale(locale: dict[str, str], tmp_path: Path) -> None:
    states, costs = tmp_path / "ö.jsonl", tmp_path / ODD_NAME
    states.write_text(STATE, encoding="utf-8")
    done = python(*COMMAND, "solve", "--input", str(states), "--output", str(costs), **locale)
    assert done.returncode == 0, done.stderr.decode()
    assert '"cost": 1' in costs.read_text(encoding="ascii")


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    done = python(*COMMAND, "report", b"runs/\xff")
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1 and rb"runs/\udcff' has bytes" in done.stderr


def test_an_empty_environment_is_enough() -> None:
    done = python(*COMMAND, "config", "seed", without=[*os.environ.keys() - {"PYTHONPATH"}])
    assert done.returncode == 0, done.stderr.decode()


def test_a_user_without_home_is_told_to_set_one() -> None:
    done = python("-c", NOBODY, without=["HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"])
    assert done.returncode == 2
    assert done.stderr.startswith(b"cast-ray: ") and b"set HOME" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_kernels_that_cannot_be_kept_are_a_sentence() -> None:
    done = python("-c", NUMBA_WITHOUT_FOLDER, NUMBA_CACHE_DIR="/nowhere")
    assert done.returncode == 2
    for fact in (b"cast-ray: ", b"set HOME", b"NUMBA_CACHE_DIR"):
        assert fact in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("given", "without_proxy"),
    [
        ("", b"127.0.0.1 localhost"),
        ("corp.example", b"127.0.0.1 localhost corp.example"),
        ("*", b"127.0.0.1 localhost corp.example openai.com"),
    ],
)
def test_no_proxy_is_asked_for_this_machine(given: str, without_proxy: bytes) -> None:
    done = python("-c", SHOW_DIRECT, without=["no_proxy"], NO_PROXY=given)
    assert done.stdout.strip() == without_proxy


def test_a_dashboard_on_this_machine_is_asked_without_the_proxy() -> None:
    with listening_proxy() as (url, asked):
        done = python(
            *COMMAND, "submit", "--list", "--address", "http://127.0.0.1:9",
            without=["no_proxy", "NO_PROXY"], http_proxy=url, all_proxy="socks5://127.0.0.1:9",
        )  # fmt: skip
    assert done.returncode == 2 and b"nothing answers at http://127.0.0.1:9" in done.stderr
    assert asked == []
