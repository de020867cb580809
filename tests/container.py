"""``make container-test``: the image for CPUs is built without a registry, and trains without root.

The base is made by debootstrap, then buildah builds Containerfile's target ``cpu`` in it and runs
``make train`` there, in a root of its own but not in namespaces. Needs root, debootstrap and
buildah; buildah's storage is a temporary folder (``STORAGE_DRIVER=vfs`` where overlay cannot be
mounted). pip's settings of this machine are mounted for the build and must not be in the image.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.wheel import SHORT

PROJECT = Path(__file__).parents[1]
BASE, IMAGE = "localhost/cast-ray-base", "localhost/cast-ray:cpu"
SETTINGS = ("cert", "index-url", "extra-index-url", "find-links", "trusted-host")
TRAIN = " ".join([*SHORT, "steps=2", "run_dir=/runs/first"])
AS_KUBERAY_MAY = "exec bash -lc 'cast-ray --version && ray --version && id -u'"


def output(*command: str, limit_s: float = 300) -> str:
    """Return what a command prints; its errors are shown as they come."""
    done = subprocess.run(
        command, cwd=PROJECT, check=True, stdout=subprocess.PIPE, text=True, timeout=limit_s
    )
    return done.stdout.strip()


class Buildah:
    """buildah with a storage of its own."""

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("STORAGE_DRIVER", "overlay")
        self._program = ["buildah", "--root", str(folder / "storage"), "--runroot"]
        self._program.append(str(folder / "run"))

    def do(self, *words: str, limit_s: float = 600) -> str:
        return output(*self._program, *words, limit_s=limit_s)

    def run(self, container: str, *words: str, limit_s: float = 600) -> str:
        """Run a command as the image's user."""
        return self.do("run", "--isolation", "chroot", container, "--", *words, limit_s=limit_s)


def pip_settings() -> dict[str, str]:
    """Return where pip takes packages from on this machine, by option."""
    found: dict[str, str] = {}
    for line in output(sys.executable, "-m", "pip", "config", "list").splitlines():
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2]
        if name in SETTINGS:
            found[name] = f"{found.get(name, '')} {ast.literal_eval(value)}".strip()
    if "cert" in found:
        found["cert"] = found["cert"].split()[0]
    return found


def mounts_of(settings: dict[str, str], folder: Path) -> list[str]:
    """Return buildah's options that show the build these settings, and the folders they name."""
    given = dict(settings)
    pairs = {"/etc/pip.conf": str(folder / "pip.conf")}
    if "cert" in given:  # not at its own place: a package of the image writes there
        pairs["/mnt/pip.crt"], given["cert"] = given["cert"], "/mnt/pip.crt"
    for word in " ".join(given.values()).split():
        path = Path(word.removeprefix("file://"))
        if path.is_dir():  # an index in files has its packages beside it
            place = str(path if word.startswith("/") else path.parent)
            pairs[place] = place
    lines = [f"{key} = {value}" for key, value in given.items()]
    (folder / "pip.conf").write_text("\n".join(["[global]", *lines, ""]))
    return [word for there, here in pairs.items() for word in ("-v", f"{here}:{there}:ro")]


def make_base(buildah: Buildah, folder: Path) -> None:
    """Store a minimal Debian as an image."""
    system = folder / "system"
    output("debootstrap", "--variant=minbase", "bookworm", str(system), limit_s=900)
    container = buildah.do("from", "scratch")
    buildah.do("add", "-q", container, str(system), "/")
    buildah.do("commit", "-q", "--rm", container, BASE)


def check_clean(buildah: Buildah, container: str, settings: dict[str, str]) -> None:
    """End everything if the image knows where this machine takes packages from."""
    texts = buildah.do("inspect", "--type", "image", IMAGE)
    texts += buildah.run(
        container, "sh", "-c", "cat /etc/pip.conf 2>/dev/null; env; pip config list"
    )
    told = [word for value in settings.values() for word in value.split() if word in texts]
    if told:
        sys.exit(f"the image tells {len(told)} of this machine's settings of pip")


def main() -> None:
    """Build and train; the last line is one JSON object."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="cast-ray-container-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the user of the build reads pip.conf there
        buildah, settings = Buildah(folder), pip_settings()
        container = ""
        try:
            begin = time.monotonic()
            make_base(buildah, folder)
            figures["base_seconds"] = round(time.monotonic() - begin)
            begin = time.monotonic()
            options = ["--isolation", "chroot", "--target", "cpu", "--build-arg", f"BASE={BASE}"]
            options += [*mounts_of(settings, folder), "-t", IMAGE, "."]
            print(buildah.do("build", *options, limit_s=3600)[-2000:], flush=True)
            figures["build_seconds"] = round(time.monotonic() - begin)
            size = json.loads(buildah.do("images", "--json", IMAGE))[0]["size"]
            container = buildah.do("from", "--pull-never", IMAGE)
            check_clean(buildah, container, settings)
            said = buildah.run(container, "sh", "-c", AS_KUBERAY_MAY)
            assert said.endswith("\n1000"), said
            print(f"{size}: {said}", flush=True)
            begin = time.monotonic()
            print(buildah.run(container, "make", "train", f"ARGS={TRAIN}", limit_s=1800)[-2000:])
            figures["make_train_seconds"] = round(time.monotonic() - begin)
            print(json.dumps({**figures, "size": size}))
        finally:
            if container:
                buildah.do("rm", container)
            buildah.do("rmi", "--all", "--force")


if __name__ == "__main__":
    main()
