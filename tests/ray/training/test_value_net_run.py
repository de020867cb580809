"""A run of a game that nobody solves: a value network says how far the goal is.

The network here is not trained: what is shown is that its word, and nobody else's, is the credit.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
import torch

from cast_ray.games import get_game
from cast_ray.games.plugins import forget_plugins
from cast_ray.rollout.trajectory import BATCH_SCHEMA, check_schema
from cast_ray.runs.run_directory import RunDirectory
from solver_actors.value_net.network import QNetwork, load_q_network, save_q_network, shape_for
from solver_actors.value_net.scale import ValueNetOracle, ValueScale
from solver_actors.value_net.solver import value_net_entry
from tests.support import installed

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]
UNSOLVED = """
from dataclasses import replace
from lights_out.solver import LIGHTS_OUT
UNSOLVED = replace(LIGHTS_OUT, solver=None)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where Lights Out is installed without its solver."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "unsolved.py").write_text(UNSOLVED)
    installed.write_dist_info(folder, "unsolved", {"lights_out": "unsolved:UNSOLVED"})
    return folder


@pytest.fixture(scope="module")
def network(
    tmp_path_factory: pytest.TempPathFactory, site: Path
) -> Iterator[tuple[QNetwork, Path]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        forget_plugins()
        torch.manual_seed(0)
        shape = shape_for("lights_out", "mini", d_model=32, num_heads=4, num_layers=1)
        made, directory = QNetwork(shape).eval(), tmp_path_factory.mktemp("net") / "value_net"
        save_q_network(made, directory)
        yield made, directory
    forget_plugins()


@pytest.fixture(scope="module")
def finished(
    site: Path, network: tuple[QNetwork, Path], tmp_path_factory: pytest.TempPathFactory
) -> RunDirectory:
    run_dir, (_, directory) = tmp_path_factory.mktemp("runs") / "run", network
    chosen = ("oracle=value_net", f"value_net.path={directory}", f"run_dir={run_dir}")
    done = installed.cast_ray_with(site, "train", *installed.LIGHTS_OUT_RUN, *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    return RunDirectory(run_dir)


def test_credit_is_what_the_network_says_and_costs_are_unknown(
    finished: RunDirectory, network: tuple[QNetwork, Path]
) -> None:
    made, _ = network
    entry = value_net_entry(ValueNetOracle(network=made, scale=ValueScale()))
    credit = []
    for file in finished.trajectory_files():
        check_schema(pq.read_table(file), BATCH_SCHEMA)
        for row in pq.read_table(file).to_pylist():
            states = [get_game("lights_out").decode(board) for board in row["states"]]
            estimates = entry.build(states[0]).cost_to_go(states)
            changes = np.array([effect == "changed" for effect in row["effects"]])
            expected = np.where(changes, estimates[:-1] - estimates[1:], 0)
            np.testing.assert_allclose(row["shifted_advantages"], expected, atol=1e-4)
            assert set(row["cost_status"]) == {"unknown"}
            credit += expected.tolist()
    assert np.count_nonzero(credit) > 10


def test_the_run_keeps_the_network_and_replays_by_it(
    finished: RunDirectory, network: tuple[QNetwork, Path], site: Path
) -> None:
    made, directory = network
    kept = load_q_network(finished.value_net).state_dict()
    for name, tensor in made.state_dict().items():
        assert torch.equal(kept[name], tensor)
    shutil.rmtree(directory)  # what becomes of the original plays no part
    replayed = installed.cast_ray_with(site, "replay", str(finished.path))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "No difference." in replayed.stdout
    more = installed.cast_ray_with(site, "train", "--resume", f"run_dir={finished.path}", "steps=3")
    assert more.returncode == 0, more.stdout + more.stderr
    assert pl.read_parquet(finished.metrics)["step"].to_list() == [1, 2, 3]


def test_another_network_is_found_out_by_replay(finished: RunDirectory, site: Path) -> None:
    torch.manual_seed(1)
    other = QNetwork(load_q_network(finished.value_net).shape)
    save_q_network(other, finished.value_net)
    replayed = installed.cast_ray_with(site, "replay", str(finished.path))
    assert replayed.returncode == 1, replayed.stdout + replayed.stderr
    assert "cost_estimates[0]" in replayed.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "lights_out has no exact solver: train with oracle=value_net"),
        (("oracle=value_net",), "value_net.path=DIRECTORY"),
        (("oracle=value_net", "value_net.path=/nowhere"), "has no q_network.json: give the"),
    ],
)
def test_run_without_a_usable_oracle_is_refused_in_one_line(
    site: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    refused = installed.cast_ray_with(
        site, "train", *installed.LIGHTS_OUT_RUN, *arguments, f"run_dir={tmp_path / 'run'}"
    )
    assert refused.returncode == 2
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "run").exists()
