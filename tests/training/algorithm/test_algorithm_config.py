"""``AlgorithmConfig`` is another way to write a configuration: same values, same refusals."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cast_ray.config.learning import ALGORITHMS
from cast_ray.config.load import load_config
from cast_ray.config.reference import config_values
from cast_ray.config.train import TrainConfig
from cast_ray.errors import ConfigError
from cast_ray.training.algorithm.callbacks import Callbacks
from cast_ray.training.algorithm.config import AlgorithmConfig

METHODS = (
    "environment",
    "env_runners",
    "engines",
    "learners",
    "rl_module",
    "warm_start",
    "training",
    "reward",
    "oracle",
    "evaluation",
    "checkpointing",
    "fault_tolerance",
    "resources",
    "debugging",
)


def settable(config: AlgorithmConfig, key: str, value: Any) -> list[str]:
    """Return the methods that take a key by its own name and do set this key."""
    name, found = key.rpartition(".")[2], []
    for method in METHODS:
        one = config.copy()
        try:
            getattr(one, method)(**{name: value})
        except (ConfigError, TypeError):
            continue
        if key in one._own:
            found.append(method)
    return found


def test_every_key_can_be_set_by_some_method() -> None:
    values = {key: key for key, _ in config_values(TrainConfig())}
    assert [key for key in values if not settable(AlgorithmConfig(), key, 1)] == []


def test_chain_is_the_same_as_the_command_line() -> None:
    chain = (
        AlgorithmConfig("gspo")
        .environment("rush_hour", tier="mini", num_train=100)
        .env_runners(num_env_runners=2, max_staleness=1, max_answer_tokens=9)
        .engines(num_engines=2, num_gpus_per_engine=1, dtype="float32", vllm={"swap_space": 1})
        .learners(num_learners=2, num_gpus_per_learner=1, zero_stage=2)
        .training(alpha=0.2, lr=1e-5, group_size=4, steps=7)
        .oracle(num_oracle_actors=2, cache_mib=64)
        .evaluation(evaluation_interval=2)
        .checkpointing(run_dir="runs/x", checkpoint_every=3)
        .fault_tolerance(max_restarts=1)
        .debugging(seed=3)
    )
    line = [
        "algorithm=gspo game=rush_hour tier=mini puzzles.num_train=100 resources.env_runners=2",
        "max_staleness=1 rollout.max_answer_tokens=9 resources.engines=2",
        "resources.gpus_per_engine=1 engine.dtype=float32 engine.vllm.swap_space=1",
        "resources.learner_ranks=2 resources.gpus_per_learner_rank=1 learner.zero_stage=2",
        "advantage.alpha=0.2 learner.lr=1e-5 rollout.group_size=4 steps=7",
        "resources.oracle_actors=2 rollout.oracle_cache_mib=64 evaluation.every=2",
        "run_dir=runs/x checkpoint_every=3 learner.max_restarts=1 seed=3",
    ]
    assert chain.validate() == load_config(None, " ".join(line).split())


@given(
    named=st.sampled_from([None, *ALGORITHMS]),
    later=st.sampled_from([None, *ALGORITHMS]),
    clip=st.sampled_from([None, 0.31]),
    file_clip=st.sampled_from([None, 0.33]),
)
@example(named="gspo", later=None, clip=None, file_clip=0.33)  # the file alone is at fault
def test_a_dictionary_means_what_the_chain_meant(
    tmp_path_factory: pytest.TempPathFactory,
    named: str | None,
    later: str | None,
    clip: float | None,
    file_clip: float | None,
) -> None:
    """Presets, too: an algorithm named later replaces a file's values."""
    file = tmp_path_factory.mktemp("config") / "run.yaml"
    lines = [f"algorithm: {named}"] * (named is not None)
    lines += [f"objective: {{clip_high: {file_clip}}}"] * (file_clip is not None)
    file.write_text("\n".join(["seed: 1", *lines]))
    overrides = [f"algorithm={later}"] * (later is not None)
    overrides += [f"objective.clip_high={clip}"] * (clip is not None)
    chain = AlgorithmConfig.from_file(file)
    if later is not None:
        chain.training(algorithm=later)
    if clip is not None:
        chain.training(clip_high=clip)
    try:
        expected = load_config(file, overrides)
    except ConfigError as refused:
        for again in (chain, AlgorithmConfig.from_dict(chain.to_dict())):
            with pytest.raises(ConfigError) as found:
                again.validate()
            assert str(found.value) == str(refused).removeprefix(f"{file}: ")
        return
    assert chain.validate() == expected
    assert AlgorithmConfig.from_dict(chain.to_dict()).validate() == expected
    assert AlgorithmConfig.from_dict(asdict(expected)).validate() == expected


def test_last_value_of_a_key_counts_and_a_copy_is_independent() -> None:
    config = AlgorithmConfig().training(alpha=0.1)
    other = config.copy().training(alpha=0.5)
    assert (config.validate().advantage.alpha, other.validate().advantage.alpha) == (0.1, 0.5)


def test_search_spaces_stay_as_they_are() -> None:
    space = {"grid_search": [0.1, 1.0]}
    anything = object()
    found = AlgorithmConfig().training(alpha=space, lr=anything, algorithm=anything).to_dict()
    assert found["advantage"]["alpha"] == space
    assert found["learner"]["lr"] is anything
    assert found["algorithm"] is anything


@pytest.mark.parametrize(
    ("config", "override"),
    [
        (AlgorithmConfig().training(alpha="much"), "advantage.alpha=much"),
        (AlgorithmConfig().environment("sokoban", num_train=0), "puzzles.num_train=0"),
        (AlgorithmConfig().training(algorithm="ppo"), "algorithm=ppo"),
        (AlgorithmConfig().learners(zero_stage=4), "learner.zero_stage=4"),
    ],
)
def test_bad_values_are_refused_in_the_words_of_the_command_line(
    config: AlgorithmConfig, override: str
) -> None:
    with pytest.raises(ConfigError) as by_line:
        load_config(None, [override])
    with pytest.raises(ConfigError) as by_chain:
        config.validate()
    assert str(by_chain.value) == str(by_line.value)


def test_unknown_argument_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError) as refused:
        AlgorithmConfig().training(alhpa=1)
    assert {"training()", "alhpa;", "alpha?"} <= set(str(refused.value).split())
    with pytest.raises(ConfigError) as refused:
        AlgorithmConfig().engines(zzz=1)
    assert "num_engines" in str(refused.value)


@pytest.mark.parametrize("values", [[1], "x", None])
def test_a_dictionary_is_needed(values: Any) -> None:
    with pytest.raises(ConfigError, match="dictionary"):
        AlgorithmConfig.from_dict(values)


def test_callbacks_must_be_a_subclass() -> None:
    with pytest.raises(ConfigError, match=r"cast_ray\.Callbacks.*print"):
        AlgorithmConfig().callbacks(print)  # pyright: ignore[reportArgumentType]


def test_single_functions_are_callbacks_too() -> None:
    seen: list[Any] = []
    config = AlgorithmConfig().callbacks(on_train_result=lambda *, result, **_: seen.append(result))
    made = AlgorithmConfig.from_dict(config.to_dict()).callbacks_class
    assert made is not None and issubclass(made, Callbacks)
    made().on_train_result(result={"done": True}, algorithm=None)  # pyright: ignore[reportArgumentType]
    made().on_sample_end(samples=None, algorithm=None)  # pyright: ignore[reportArgumentType]
    assert seen == [{"done": True}]
    with pytest.raises(ConfigError, match=r"on_train_results;.*on_train_result\?"):
        AlgorithmConfig().callbacks(on_train_results=print)


def test_the_public_names_need_neither_torch_nor_ray(tmp_path: Path) -> None:
    code = """
import sys, cast_ray
heavy = ("torch", "ray", "vllm", "deepspeed")
assert not set(heavy) & set(sys.modules)
light = set(cast_ray.__all__) - {"Algorithm", "evaluate"}
for name in light:
    getattr(cast_ray, name)
cast_ray.AlgorithmConfig().training(alpha=0.1).validate()
assert cast_ray.solve("sokoban", "#####\\n#PXO#\\n#####").best_action == "Right"
print(sorted(set(heavy) & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    import cast_ray

    with pytest.raises(AttributeError, match="nothing_of_ours"):
        _ = cast_ray.nothing_of_ours
    assert set(cast_ray.__all__) <= set(dir(cast_ray))
