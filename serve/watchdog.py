"""A process that must not outlive the one that started it.

An engine's processes are started by a replica. A replica that is killed with SIGKILL runs no
clean-up, and they would go on for minutes, with their memory and their share of the cores.
"""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing import parent_process


def end_with_parent() -> None:
    """End this process, at once, when the process that started it has ended.

    Does nothing in a process that was not started by ``multiprocessing``.
    """
    parent = parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="end_with_parent", daemon=True).start()
