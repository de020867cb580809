"""The examples run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_one_step_shows_every_stage_and_moves_the_policy_as_told(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "one_step.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    stages = re.findall(r"── (\d)\. (\w+)", done.stdout)
    assert stages == list(
        zip("12345", ("Boards", "Policy", "Episodes", "Credit", "Update"), strict=True)
    )
    assert "shift: " in done.stdout
    rose, fell = map(float, re.findall(r"(?:above|below) 0: ([+-][\d.]+|nan)", done.stdout))
    assert rose > 0
    assert not fell > 0  # nan: no turn of this group did harm
