"""``make slurm-test``: a run as a job of a real Slurm, all of it on this computer."""

from __future__ import annotations

import sys

from tests.cluster.machines import enter_launcher, missing

_PROGRAMS = {"slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "munged": "munge"}


def main() -> int:
    """Run ``launcher`` in namespaces of its own and return its exit code."""
    if lacks := missing(**_PROGRAMS):
        for sentence in lacks:
            print(f"slurm-test: {sentence}", file=sys.stderr)
        return 2
    try:
        return enter_launcher([sys.executable, "-m", "tests.slurm.launcher", *sys.argv[1:]])
    except BlockingIOError:
        print("slurm-test: it or cluster-test is at it; wait for its end", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
