"""Every kind of file that comes from outside: where it lies in a folder, and what reads it.

A reader returns a value that two equal files have in common. It may raise ``CastRayError`` and
nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from fastapi.testclient import TestClient

from cast_ray.cluster.cluster_file import faults_of, read_cluster_file
from cast_ray.config.load import load_config
from cast_ray.config.tiers import described_tier
from cast_ray.errors import CastRayError
from cast_ray.evaluation.attempts import read_attempts
from cast_ray.evaluation.directory import EvaluationDirectory
from cast_ray.evaluation.endpoint.journal import AnswerJournal
from cast_ray.evaluation.experiments.collect import swept_runs
from cast_ray.evaluation.experiments.sweep_plan import read_arms
from cast_ray.files import read_json
from cast_ray.games import get_game
from cast_ray.games.collections.files import read_board_files
from cast_ray.games.json_state import parse_request, request_of
from cast_ray.games.puzzles import read_puzzle_metadata, read_puzzles
from cast_ray.learner.policy import load_policy
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import read_chat_pieces, stored_chat_pieces
from cast_ray.rollout.trajectory import BATCH_SCHEMA, SCORED_SCHEMA
from cast_ray.runs.directories import MARKER, check_whole
from cast_ray.runs.metrics import read_metrics, read_validation
from cast_ray.runs.recoveries import read_recoveries
from cast_ray.runs.remote_directories import check_whole_at, sound_model
from cast_ray.runs.remote_lock import read_claim
from cast_ray.runs.remote_run import read_origin
from cast_ray.runs.report.page import write_report
from cast_ray.runs.run_directory import RunDirectory, read_batch
from cast_ray.runs.tracking.tracker import TrackedRun
from cast_ray.runs.uris import Uri
from cast_ray.training.replay.replay import replay_run
from cast_ray.training.value_net.directory import ValueNetDirectory
from cast_ray.weights.manifest import latest_manifest, read_weights
from solver_actors.value_net.network import load_q_network
from tests.support.site import FREE, site_app

Reader = Callable[[Path], object]


@dataclass(frozen=True)
class Kind:
    """One kind of file."""

    name: str
    pattern: str
    """Of the file, in a folder laid out like a run directory."""
    read: Reader
    form: str
    """``parquet``, ``safetensors``, ``json``, ``lines`` (JSON), ``yaml`` or ``text``."""
    is_sealed: bool = True
    """Whether the file has a digest, so that no change may go unnoticed."""
    others: tuple[Reader, ...] = ()
    """Further readers, for files that no damage but a person made."""


def run_of(path: Path) -> Path:
    """Return the run directory that a file is in."""
    return next(folder for folder in path.parents if (folder / "config.yaml").is_file())


def whole(directory: Path) -> object:
    """Return the bytes of a marked directory, and what its marker says."""
    files = sorted(path for path in directory.iterdir() if path.name != MARKER)
    digests = [blake2b(path.read_bytes()).hexdigest() for path in files]
    return read_json(directory / MARKER)["files"], digests


def checkpoint(path: Path) -> object:
    check_whole(path.parent)
    return whole(path.parent)


def model(path: Path) -> object:
    return whole(sound_model(path.parent))


def any_model(path: Path) -> object:
    """Load a model of somebody else's, which has no checksums."""
    sound_model(path.parent)
    ChatTokenizer(path.parent, read_chat_pieces(path.parent))
    return load_policy(path.parent, dtype=torch.float32) and None


def value_network(path: Path) -> object:
    load_q_network(path.parent)
    return whole(path.parent)


@cache
def _site(root: Path) -> TestClient:
    client = TestClient(site_app(replace(FREE, runs=root)))
    client.__enter__()
    return client


def browse(path: Path) -> object:
    """Ask for everything that the page shows of a run."""
    run = run_of(path)
    site = _site(run.parent)

    def ask(what: str, **query: Any) -> Any:
        answer = site.get(f"/api/{what}", params={"run": run.name} | query)
        body = answer.json()
        if answer.status_code >= 400:
            assert answer.status_code < 500, body
            raise CastRayError(body["error"]["message"])
        return body

    ask("runs")
    ask("run/metrics")
    for step in ask("run")["trajectory_steps"][:3]:
        for sort in ("regret", "turns", "advantage"):
            rows = ask("run/step", step=step, sort=sort)["trajectories"]
        for row in rows[:3]:
            ask("run/trajectory", step=step, group=row["group"], episode=row["episode"])
    return None


def report(path: Path) -> object:
    return write_report(RunDirectory.existing(run_of(path))).stat().st_size


def replay(path: Path) -> object:
    return len(replay_run(run_of(path)).differences)


def starts(path: Path) -> object:
    before = path.read_bytes()
    try:
        return RunDirectory(run_of(path)).note_start("another")
    finally:
        path.write_bytes(before)


def journal(path: Path) -> object:
    found = AnswerJournal(path)
    return [found._entries[i] for i in range(found.num_unread)]


def evaluation(path: Path) -> object:
    with EvaluationDirectory.open(path.parent, {"games": ["sokoban"], "attempts": 4}):
        return None


def weights(path: Path) -> object:
    manifest = latest_manifest(path.parent)
    assert manifest is not None
    return manifest, {k: v.numpy().tobytes() for k, v in read_weights(manifest).items()}


def boards(path: Path) -> object:
    game = get_game(path.stem)
    found = list(islice(read_board_files(path, game), 200))
    return _all(lambda board: request_of(game, board).state, found)


def requests(path: Path) -> object:
    return _all(parse_request, path.read_bytes().split(b"\n"))


def _all(read: Callable[[Any], object], parts: Iterable[Any]) -> list[object]:
    """Return what is read of every part; raise the first error after all were read."""
    found, errors = [], []
    for part in parts:
        try:
            found.append(read(part))
        except CastRayError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return found


def uri(path: Path) -> Uri:
    return Uri(path.absolute().as_uri())


OF_A_RUN = (browse, report, replay)

KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "trajectories",
            "trajectories/step-*.parquet",
            lambda path: read_batch(path, BATCH_SCHEMA),
            "parquet",
            others=OF_A_RUN,
        ),
        Kind(
            "evaluation games",
            "evaluations/*.parquet",
            lambda path: read_batch(path, SCORED_SCHEMA),
            "parquet",
            others=OF_A_RUN,
        ),
        Kind("metrics", "metrics.parquet", read_metrics, "parquet", others=OF_A_RUN),
        Kind("validation", "validation.parquet", read_validation, "parquet", others=(report,)),
        Kind(
            "puzzles",
            "puzzles/*.parquet",
            lambda path: (read_puzzle_metadata(path), read_puzzles(path)),
            "parquet",
            others=(replay,),
        ),
        Kind("attempts", "attempts.parquet", read_attempts, "parquet"),
        Kind("board table", "boards/sokoban.parquet", boards, "parquet"),
        Kind("checkpoint: weights", "checkpoints/*/weight-*", checkpoint, "safetensors"),
        Kind("checkpoint: moments", "checkpoints/*/exp_avg-*", checkpoint, "safetensors"),
        Kind("checkpoint: random states", "checkpoints/*/random_*", checkpoint, "safetensors"),
        Kind("checkpoint: state", "checkpoints/*/learner.json", checkpoint, "json"),
        Kind("checkpoint: marker", "checkpoints/*/complete.json", checkpoint, "json"),
        Kind("model: weights", "model/model.safetensors", model, "safetensors"),
        Kind("model: configuration", "model/config.json", model, "json"),
        Kind("model: tokenizer", "model/tokenizer.json", model, "json"),
        Kind("model: template", "model/chat_template.jinja", model, "text"),
        Kind("model: marker", "model/complete.json", model, "json"),
        Kind("start model: weights", "start_model/model.safetensors", model, "safetensors"),
        Kind("value network: weights", "value_net/*.safetensors", value_network, "safetensors"),
        Kind("value network: shape", "value_net/q_network.json", value_network, "json"),
        Kind("sent weights", "weights/*.safetensors", weights, "safetensors"),
        Kind("sent weights: manifest", "weights/*.json", weights, "json", is_sealed=False),
        Kind(
            "configuration",
            "config.yaml",
            lambda path: load_config(path, [], is_stored=True),
            "yaml",
            is_sealed=False,
            others=OF_A_RUN,
        ),
        Kind(
            "summary",
            "summary.json",
            lambda path: RunDirectory(path.parent).read_summary(),
            "json",
            is_sealed=False,
            others=(browse, report),
        ),
        Kind(
            "chat pieces",
            "chat_pieces.json",
            lambda path: stored_chat_pieces(path.parent),
            "json",
            is_sealed=False,
        ),
        Kind("starts", "starts.txt", starts, "text", is_sealed=False),
        Kind(
            "recoveries",
            "recoveries.jsonl",
            read_recoveries,
            "lines",
            is_sealed=False,
            others=(report,),
        ),
        Kind(
            "tracking",
            "tracking.json",
            lambda path: TrackedRun(directory=path.parent, config=load_config(None, [])).identity(),
            "json",
            is_sealed=False,
        ),
        Kind("journal", "journal/*.jsonl", journal, "lines", is_sealed=False),
        Kind("evaluation", "evaluation/evaluation.json", evaluation, "json", is_sealed=False),
        Kind(
            "origin of a copy",
            "copy.json",
            lambda path: read_origin(path.with_suffix("")),
            "json",
            is_sealed=False,
        ),
        Kind(
            "owner",
            "owner.json",
            lambda path: read_claim(uri(path.parent)),
            "json",
            is_sealed=False,
        ),
        Kind(
            "marker in a store",
            "checkpoints/*/complete.json",
            lambda path: check_whole_at(uri(path.parent)),
            "json",
            is_sealed=False,
        ),
        Kind(
            "log of a value network",
            "metrics.jsonl",
            lambda path: ValueNetDirectory(path.parent).rows(),
            "lines",
            is_sealed=False,
        ),
        Kind(
            "sweep",
            "sweep/sweep.json",
            lambda path: [frame.rows() for frame in swept_runs(path.parent)],
            "json",
            is_sealed=False,
        ),
        Kind("any model: weights", "other/model.safetensors", any_model, "safetensors", False),
        Kind("any model: configuration", "other/config.json", any_model, "json", False),
        Kind("any model: tokenizer", "other/tokenizer.json", any_model, "json", False),
        Kind("any model: template", "other/chat_template.jinja", any_model, "text", False),
        Kind("own configuration", "own.yaml", lambda path: load_config(path, []), "yaml", False),
        Kind("tier", "tier.yaml", lambda path: described_tier(str(path)), "yaml", False),
        Kind("arms", "arms.yaml", read_arms, "yaml", False),
        Kind(
            "cluster file",
            "cluster.yaml",
            lambda path: faults_of(read_cluster_file(path)),
            "yaml",
            False,
        ),
        Kind("boards of Sokoban", "boards/sokoban.txt", boards, "text", False),
        Kind("boards of Rush Hour", "boards/rush_hour.txt", boards, "text", False),
        Kind("boards of Minesweeper", "boards/minesweeper.txt", boards, "text", False),
        Kind("states to solve", "states.jsonl", requests, "lines", False),
    )
}
