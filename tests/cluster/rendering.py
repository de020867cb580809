"""configs/cluster/ssh.yaml as it is for the machines of ``machines``.

Two lines are others: the user, and the setup, in whose place the environment of this checkout is
linked. Addresses, key, token, file mounts and start commands are the file's own: they are tested.
"""

from __future__ import annotations

from pathlib import Path

CHANGED = {
    "  ssh_user: ubuntu": "  ssh_user: root",
    # The environment is this checkout's; the code is what the file mounts brought.
    "  - cd ~/cast_ray && bash setup.sh .venv": "  - ln -sfn {environment} ~/cast_ray/.venv; "
    "grep -q PYTHONPATH ~/.bashrc || echo 'export PYTHONPATH=~/cast_ray' >> ~/.bashrc",
}


def rendered(text: str, *, environment: Path) -> str:
    """Return the file's text with ``CHANGED`` in it.

    Args:
        text: of configs/cluster/ssh.yaml.
        environment: that all machines see.

    Raises:
        ValueError: a line that has to be another is not there just once.
    """
    for old, new in CHANGED.items():
        if text.count(f"{old}\n") + text.count(f"{old}  #") != 1:
            raise ValueError(f"ssh.yaml has no such line, or several: {old}")
        text = text.replace(old, new.format(environment=environment))
    return text
