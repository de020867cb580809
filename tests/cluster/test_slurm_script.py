"""What `make slurm-test` goes by: it takes long and needs root, so that it is run seldom."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import typer.main
from ray.scripts import scripts

from cast_ray.cli.main import app
from cast_ray.config.load import load_config

SCRIPT = Path(__file__).parents[2] / "examples" / "slurm" / "train.sbatch"
TEXT = SCRIPT.read_text().replace("\\\n", " ")


def test_bash_reads_the_script() -> None:
    done = subprocess.run(["bash", "-n", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_run_is_started_with_keys_and_options_that_exist() -> None:
    [command] = re.findall(r" cast-ray train (.*) &$", TEXT, re.MULTILINE)
    keys = re.findall(r"\b[a-z_.]+=\w+", command)
    assert len(keys) == 1
    load_config(None, keys)
    [option] = re.findall(r"resume=\((\S+)\)", TEXT)
    train = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    assert option in {flag for item in train.params for flag in item.opts}


def test_ray_is_started_with_options_that_exist() -> None:
    options = {flag for item in scripts.start.params for flag in item.opts}
    lines = [line for line in TEXT.splitlines() if re.search(r"ray start |^ *start_ray -", line)]
    given = set(re.findall(r" (--[a-z-]+)", "\n".join(lines)))
    assert {"--head", "--address", "--num-gpus"} <= given <= options


def test_warning_leaves_more_time_than_a_step_gets_for_slurm_may_be_a_minute_late() -> None:
    [warning] = re.findall(r"^#SBATCH --signal=B:TERM@(\d+)", TEXT, re.MULTILINE)
    [step] = re.findall(r"^_STEP_S=(\d+)", TEXT, re.MULTILINE)
    assert int(warning) >= int(step) + 60


@pytest.mark.parametrize("words", [["steps=3"], ["run_dir=runs/mine"]])
def test_run_directory_that_nodes_may_not_share_is_refused(words: list[str]) -> None:
    done = subprocess.run(["bash", SCRIPT, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "run_dir=/PATH" in done.stderr
