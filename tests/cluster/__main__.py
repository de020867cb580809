"""``make cluster-test``: a cluster by ``ray up`` over SSH, all of it on this computer."""

from __future__ import annotations

import sys

from tests.cluster.machines import enter_launcher, missing


def main() -> int:
    """Run ``launcher`` in namespaces of its own and return its exit code."""
    if lacks := missing():
        for sentence in lacks:
            print(f"cluster-test: {sentence}", file=sys.stderr)
        return 2
    try:
        return enter_launcher([sys.executable, "-m", "tests.cluster.launcher", *sys.argv[1:]])
    except BlockingIOError:
        print("cluster-test: another one is at it; wait for its end", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
