"""Which trials a sweep has, and what of it is refused before anything starts."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cast_ray.cli.main import app
from cast_ray.config.load import load_config
from cast_ray.errors import ConfigError, EnvironmentSetupError, RunDirectoryError
from cast_ray.evaluation.experiments.sweep_plan import plan_sweep, read_arms
from cast_ray.runs.run_directory import RunDirectory
from tests.support.refusals import refused

ARMS = Path(__file__).parents[2] / "configs" / "arms"


def test_trials_are_all_combinations_in_the_order_given() -> None:
    plan = plan_sweep(None, ["advantage.alpha=0,0.1", "steps=2", "seed=0,1,2"])
    assert [(t.config.advantage.alpha, t.config.seed) for t in plan.trials] == list(
        itertools.product((0.0, 0.1), (0, 1, 2))
    )
    assert {t.config.steps for t in plan.trials} == {2}
    assert [t.name for t in plan.trials][:2] == [
        "alpha=0,seed=0".replace(",", "_"),
        "alpha=0_seed=1",
    ]
    assert plan.trials[0].setting == {"advantage.alpha": "0"}


def test_an_algorithm_can_be_swept() -> None:
    plan = plan_sweep(None, ["algorithm=cast,grpo"])
    assert [trial.config.advantage.alpha > 0 for trial in plan.trials] == [True, False]


def test_commas_in_brackets_belong_to_a_value() -> None:
    plan = plan_sweep(None, ["learner.betas=[0.9,0.95],[0.9,0.99]", "steps=1"])
    assert [trial.config.learner.betas for trial in plan.trials] == [(0.9, 0.95), (0.9, 0.99)]
    tiers = ["near@6x6x1,4-6,8", "far@6x6x1,8-12,16"]
    given = [f"puzzles.file=data/{tiers[0]}", "warm_start.steps=0", "policy.path=x"]
    plan = plan_sweep(None, [f"tier={','.join(tiers)}", *given])
    assert [trial.config.tier for trial in plan.trials] == tiers
    assert {trial.config.puzzles.file for trial in plan.trials} == {f"data/{tiers[0]}"}
    assert len({trial.name for trial in plan.trials}) == 2


def test_each_arm_says_its_own_keys_in_every_combination(tmp_path: Path) -> None:
    arms = tmp_path / "arms.yaml"
    arms.write_text("CAST: []\noutcome only: [algorithm=dapo, 'learner.betas=[0.9,0.95]']\n")
    plan = plan_sweep(None, ["seed=0,1", "steps=2"], arms=read_arms(arms))
    assert [trial.name for trial in plan.trials] == [
        "arm=CAST_seed=0",
        "arm=CAST_seed=1",
        "arm=outcome_only_seed=0",
        "arm=outcome_only_seed=1",
    ]
    cast, outcome = plan.trials[0], plan.trials[3]
    assert cast.overrides == ["seed=0"]
    assert outcome.overrides == ["algorithm=dapo", "learner.betas=[0.9,0.95]", "seed=1"]
    assert outcome.values == {"arm": "outcome only", "seed": "1"}
    assert outcome.setting == {"arm": "outcome only"}
    assert (cast.config.advantage.alpha > 0, outcome.config.advantage.alpha) == (True, 0)
    assert outcome.config.learner.betas == (0.9, 0.95)
    assert len(plan_sweep(None, [], arms=read_arms(arms)).trials) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"arms\.yaml.*key=value"),
        ("- steps=3\n", r"arms\.yaml.*key=value"),
        ("CAST: [\n", "arms.yaml .*YAML"),
        ("CAST: steps=3\n", "arm CAST: .*key=value"),
        ("CAST: [3]\n", "arm CAST: .*key=value"),
        ("CAST: []\nsmall: [policy.hidden_size=64]\n", "policy.hidden_size.*policy.path"),
        ("CAST: [run_dir=x]\n", "run_dir .*--out"),
        ("CAST: [oracle=value_net]\n", "arm=CAST: .*value_net.path"),
    ],
)
def test_invalid_arm_is_refused(tmp_path: Path, text: str, words: str) -> None:
    arms = tmp_path / "arms.yaml"
    arms.write_text(text)
    with pytest.raises(ConfigError, match=words):
        plan_sweep(None, [], arms=read_arms(arms))


@pytest.mark.parametrize("file", sorted(ARMS.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_arms_that_come_along_can_be_planned(file: Path) -> None:
    assert len(plan_sweep(None, ["seed=0,1"], arms=read_arms(file)).trials) >= 4


def test_arms_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.yaml"):
        plan_sweep(None, [], arms=read_arms(tmp_path / "gone.yaml"))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["steps=3"], "advantage.alpha=0,0.1.*--arms"),
        (["seed=0,0"], "seed=0,0"),
        (["seed=0,1", "seed=2,3"], "seed.*twice"),
        (["tier=mini,id"], "tier .*policy.path"),
        (["warm_start.steps=1,2"], "warm_start.steps.*policy.path"),
        (["seed=0,1", "run_dir=x"], "run_dir .*--out"),
        (["seed=0,1", "stepps=3"], "key stepps"),
        (["advantage.alpha=0.1,high"], "advantage.alpha=high"),
    ],
)
def test_invalid_sweep_is_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_sweep(None, overrides)


def test_a_sweep_is_resumed_by_one_that_has_all_its_trials() -> None:
    arms = {"CAST": [], "DAPO": ["algorithm=dapo"]}
    begun = plan_sweep(None, ["seed=0,1", "steps=2", "game=rush_hour"], arms=arms).given

    def goes_on(overrides: list[str], arms: dict[str, list[str]] = arms) -> bool:
        return plan_sweep(None, overrides, arms=arms).extends(json.loads(json.dumps(begun)))

    assert goes_on(["seed=0,1", "game=rush_hour", "steps=2"])
    assert goes_on(
        ["seed=2,1,0", "steps=2", "game=rush_hour"], {**arms, "GRPO": ["algorithm=grpo"]}
    )
    assert not goes_on(["seed=0,2", "steps=2", "game=rush_hour"])
    assert not goes_on(["seed=0,1", "steps=3", "game=rush_hour"])
    assert not goes_on(["seed=0,1", "steps=2"])
    assert not goes_on(["seed=0,1", "learner.lr=1e-4,2e-4", "steps=2", "game=rush_hour"])
    assert not goes_on(["seed=0,1", "steps=2", "game=rush_hour"], {"CAST": []})
    other = {**arms, "DAPO": ["algorithm=dapo", "learner.lr=1e-4"]}
    assert not goes_on(["seed=0,1", "steps=2", "game=rush_hour"], other)


def test_every_refused_trial_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        plan_sweep(None, ["rollout.group_size=0,8,-1", "seed=0,1"])
    assert str(caught.value).count("rollout.group_size must be") == 4


def test_with_a_trained_policy_there_is_no_warm_start_to_share() -> None:
    plan = plan_sweep(None, ["policy.path=somewhere", "puzzles.seed=0,1"])
    assert not plan.needs_warm_start
    assert len(plan.trials) == 2
    assert plan_sweep(None, [*plan.fixed, "warm_start.steps=3", "seed=0,1"]).needs_warm_start


@settings(max_examples=15)
@given(
    st.lists(
        st.lists(st.integers(0, 99), min_size=1, max_size=3, unique=True), min_size=1, max_size=3
    )
)
def test_the_number_of_trials_is_the_product(sizes: list[list[int]]) -> None:
    keys = ("seed", "steps", "checkpoint_every")
    overrides = [
        f"{key}={','.join(str(v + 1) for v in values)}"
        for key, values in zip(keys, sizes, strict=False)
    ]
    expected = 1
    for values in sizes:
        expected *= len(values)
    if all(len(values) == 1 for values in sizes):
        with pytest.raises(ConfigError, match=r"advantage\.alpha=0,0\.1.*--arms"):
            plan_sweep(None, overrides)
        return
    plan = plan_sweep(None, overrides)
    assert len(plan.trials) == expected
    assert len({trial.name for trial in plan.trials}) == expected


def test_a_dry_run_lists_the_trials_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["sweep", "seed=0,1", "advantage.alpha=0,1", "--dry-run"])
    assert done.output.splitlines() == [
        f"seed={seed} advantage.alpha={alpha}" for seed in (0, 1) for alpha in (0, 1)
    ]
    assert list(tmp_path.iterdir()) == []


def test_as_many_trials_together_as_the_scarcest_resource_allows() -> None:
    from cast_ray.cluster.placement import reserved_cpus
    from cast_ray.evaluation.experiments.sweep import trials_that_fit

    base = plan_sweep(None, ["seed=0,1", "resources.gpus_per_learner_rank=1"]).base
    cpus = reserved_cpus(base)
    ranks = base.resources.learner_ranks
    assert trials_that_fit(base, {"CPU": 3.5 * cpus, "GPU": 9 * ranks}) == 3
    assert trials_that_fit(base, {"CPU": 9 * cpus, "GPU": 2 * ranks}) == 2
    oracles = ["oracle=value_net", "value_net.path=net", "resources.gpus_per_oracle_actor=1"]
    base = plan_sweep(None, ["seed=0,1", "resources.oracle_actors=2", *oracles]).base
    assert trials_that_fit(base, {"CPU": 99, "GPU": 4}) == 2
    base = plan_sweep(None, ["seed=0,1", "resources.gpus_per_learner_rank=1"]).base
    with pytest.raises(EnvironmentSetupError, match=r"GPU.*resources\.learner_ranks"):
        trials_that_fit(base, {"CPU": 9 * cpus})


def test_a_finished_trial_of_other_values_is_refused_and_not_mixed_in(tmp_path: Path) -> None:
    from cast_ray.evaluation.experiments.sweep import SweepTrial

    config = load_config(None, ["steps=2", f"run_dir={tmp_path / 'trial'}"])
    RunDirectory.create(tmp_path / "trial", config).write_summary({"steps": 2})

    def ended(*overrides: str) -> dict[str, Any]:
        values = asdict(load_config(None, [f"run_dir={config.run_dir}", *overrides]))
        trial = SweepTrial({"trial": {"name": "trial", "values": values, "directory": "."}})
        return trial.step()

    assert "failure" not in ended("steps=2", "learner.num_threads=3")
    assert "learner.lr" in ended("steps=2", "learner.lr=0.1")["failure"]


def test_a_sweep_begins_in_no_place_that_holds_something_else(tmp_path: Path) -> None:
    from cast_ray.evaluation.experiments.sweep import run_sweep

    (tmp_path / "mine.txt").write_text("mine")
    for out in (tmp_path, tmp_path / "mine.txt"):
        with refused(RunDirectoryError, str(out), "--out"):
            run_sweep(plan_sweep(None, ["seed=0,1"]), file=None, out=out, at_once=1)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]
