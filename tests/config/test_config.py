"""Configuration: what is written is read back, and what is wrong is refused in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.config.learning import ALGORITHMS
from cast_ray.config.load import config_keys, load_config, load_value_net_config, save_config
from cast_ray.config.pretrained import SMALL_POLICY_KEY, pretrained_note
from cast_ray.config.train import AdvantageConfig, TrainConfig
from cast_ray.errors import ConfigError
from tests.support.odd_names import ODD_NAME
from tests.support.refusals import refused
from tests.support.rooms import FIXED

_CONFIGS = Path(__file__).parents[2] / "configs"
_OF_OTHERS = ("arms", "cluster", "serve", "tiers", "value_net")
"""Folders of files that `cast-ray train` does not read."""
EXAMPLES = sorted(
    {*_CONFIGS.rglob("*.yaml")}
    - {path for name in _OF_OTHERS for path in (_CONFIGS / name).iterdir()}
)


def refusal(*overrides: str, file: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(file, overrides)
    return str(caught.value)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "given.yaml"
    path.write_text(text)
    return path


def test_no_file_and_no_override_give_the_defaults() -> None:
    assert load_config(None, []) == TrainConfig()


def test_overrides_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    path = written(tmp_path, "steps: 7\nadvantage:\n  alpha: 0.25\n")
    config = load_config(path, ["advantage.alpha=0.75", "learner.betas=[0.8,0.99]"])
    assert (config.steps, config.advantage.alpha) == (7, 0.75)
    assert config.learner.betas == (0.8, 0.99)
    assert config.advantage.std == TrainConfig().advantage.std


def test_last_override_of_a_key_wins() -> None:
    assert load_config(None, ["steps=3", "steps=4"]).steps == 4


def test_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, ""), []) == TrainConfig()


@FIXED
@given(
    alpha=st.floats(0, 1e6, exclude_min=True),  # permuted credit of weight 0 is refused
    steps=st.integers(0, 10**9),
    run_dir=st.text(st.characters(categories=["L", "N", "Z", "P"]), max_size=20),
    std=st.sampled_from(["population", "sample"]),
    betas=st.tuples(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True)),
    permute=st.booleans(),
)
def test_written_configuration_is_read_back_equal(
    tmp_path_factory: pytest.TempPathFactory,
    alpha: float,
    steps: int,
    run_dir: str,
    std: str,
    betas: tuple[float, float],
    permute: bool,
) -> None:
    config = replace(
        TrainConfig(),
        steps=steps,
        run_dir=run_dir,
        learner=replace(TrainConfig().learner, betas=betas),
        advantage=AdvantageConfig(alpha=alpha, std=std, permute_credit=permute),  # type: ignore[arg-type]
    )
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    save_config(config, path)
    assert load_config(path, []) == config


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_configurations_are_valid(path: Path) -> None:
    assert load_config(path, []).steps >= 0


def test_the_paper_s_run_corrects_no_rollout() -> None:
    [path] = [path for path in EXAMPLES if path.stem == "paper_sokoban"]
    assert load_config(path, ["algorithm=grpo"]).objective.rollout_correction == "none"


def test_keys_are_listed_in_dotted_form() -> None:
    keys = list(config_keys())
    assert "steps" in keys
    assert "advantage.alpha" in keys
    assert "advantage" not in keys
    assert len(keys) == len(set(keys))


def test_unknown_key_is_refused_with_the_keys_that_exist() -> None:
    message = refusal("advantage.alfa=1")
    assert message.startswith("advantage.alfa=1: ")
    assert message.endswith("no key advantage.alfa: did you mean advantage.alpha?")
    assert refusal("lr=1").endswith("did you mean warm_start.lr or learner.lr?")
    assert "advantage.alpha, advantage.transform" in refusal("advantage.zzzz=1")


@pytest.mark.parametrize("key", ["temperature", "top_p"])
def test_training_has_no_sampling_keys(key: str) -> None:
    assert f"no key rollout.{key}" in refusal(f"rollout.{key}=1")


def test_unknown_key_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "advantage:\n  alfa: 2\n")
    message = refusal(file=path)
    assert message.startswith(f"{path}: there is no key advantage.alfa")
    assert "advantage.alpha" in message


def test_unknown_section_is_refused_with_the_sections_that_exist() -> None:
    assert refusal("advantages.alpha=1").endswith("no key advantages: did you mean advantage?")
    message = refusal("foo.alpha=1")
    assert message.startswith("foo.alpha=1: there is no key foo")
    assert "run_dir, seed, game" in message
    assert "warm_start, value_net, rollout, engine" in message


@pytest.mark.parametrize(
    ("override", "allowed"),
    [
        ("advantage.alpha=x", "Float"),
        ("steps=1.5", "Integer"),
        ("advantage.permute_credit=maybe", "bool"),
        ("advantage.std=biased", "['population', 'sample']"),
        ("learner.zero_stage=4", "[0, 1, 2, 3]"),
        ("learner.betas=[0.9]", "length 2"),
        ("seed=null", "'int'"),
        ("advantage.alpha=", "could not be converted to Float"),
        ("engine.weight_backend=nccl", "'cast_ray_file', 'cast_ray_broadcast'"),
    ],
)
def test_value_of_another_kind_is_refused_with_what_is_allowed(override: str, allowed: str) -> None:
    message = refusal(override)
    assert message.startswith(f"{override}: key {override.partition('=')[0]}: ")
    assert allowed in message


@pytest.mark.parametrize(
    ("override", "facts"),
    [
        ("advantage.alpha=-1", ("advantage.alpha", ">= 0", "-1.0")),
        ("advantage.alpha=nan", ("advantage.alpha", ">= 0", "nan")),
        ("rollout.group_size=0", ("rollout.group_size", ">= 1", "got 0")),
        ("objective.clip_low=1", ("objective.clip_low", "0 and 1", "1.0")),
        ("evaluation.top_p=1.5", ("evaluation.top_p", "(0, 1]", "1.5")),
        ("sync.warn_ratio=20", ("sync.warn_ratio", "sync.stop_ratio", "10.0", "20.0")),
        ("policy.num_kv_heads=3", ("policy.num_kv_heads", "num_heads", "(2)", "3")),
        ("policy.num_kv_heads=0", ("policy.num_kv_heads", ">= 1", "got 0")),
        (
            "learner.mini_batches=99",
            ("learner.mini_batches", "rollout.puzzles_per_step", "16", "99"),
        ),
        ("steps=-1", ("steps", ">= 0", "-1")),
    ],
)
def test_value_out_of_range_is_refused_with_key_value_and_range(
    override: str, facts: tuple[str, ...]
) -> None:
    with refused(ConfigError, *facts):
        load_config(None, [override])


def test_limits_are_checked_after_all_overrides() -> None:
    config = load_config(None, ["learner.mini_batches=99", "rollout.puzzles_per_step=99"])
    assert config.learner.mini_batches == 99


def test_override_without_a_value_is_refused() -> None:
    message = refusal("seed")
    assert "'seed'" in message
    assert "key=value" in message


def test_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.yaml"
    assert str(path) in refusal(file=path)


@pytest.mark.parametrize("text", ["a: [1\n", "steps: 1\nsteps: 2\n", "\tsteps: 1\n"])
def test_file_that_is_no_yaml_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    message = refusal(file=written(tmp_path, text))
    assert "given.yaml is not valid YAML: " in message
    assert "\n" not in message


def test_file_that_is_a_list_is_refused(tmp_path: Path) -> None:
    assert "given.yaml" in refusal(file=written(tmp_path, "- 1\n"))


def test_override_that_is_no_yaml_is_refused() -> None:
    assert refusal("steps=[1").startswith("steps=[1: ")


def test_infinite_alpha_is_refused() -> None:
    assert "advantage.alpha" in refusal("advantage.alpha=inf")


PUBLISHED = {
    # ratio, aggregation, clip low, clip high, dual clip, KL: SPEC, section 4.
    "grpo": ("token", "token_mean", 0.2, 0.2, 3.0, 0.001),
    "dapo": ("token", "token_mean", 0.2, 0.28, 3.0, 0.0),
    "cast": ("token", "token_mean", 0.2, 0.28, 3.0, 0.0),
    "gspo": ("sequence", "sequence_mean", 3e-4, 4e-4, 0.0, 0.0),
    "gigpo": ("token", "token_mean", 0.2, 0.2, 3.0, 0.001),
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_one_word_sets_an_algorithm_over_the_values_of_a_file(tmp_path: Path, name: str) -> None:
    text = "algorithm: gspo\nadvantage: {alpha: 0.3, step_weight: 0.5}\nobjective: {clip_low: 0.01}"

    config = load_config(written(tmp_path, text), [f"algorithm={name}"])

    objective = config.objective
    assert (
        objective.ratio,
        objective.aggregation,
        objective.clip_low,
        objective.clip_high,
        objective.dual_clip,
        objective.kl_coefficient,
    ) == PUBLISHED[name]
    assert config.advantage.alpha == (0.3 if name == "cast" else 0.0)
    assert config.advantage.step_weight == (1.0 if name == "gigpo" else 0.0)
    assert config.distillation.mode == "none"


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_algorithms_differ_in_nothing_but_objective_advantage_and_distillation(name: str) -> None:
    plain = load_config(None, [])

    config = load_config(None, [f"algorithm={name}"])

    parts = {
        "algorithm": plain.algorithm,
        "objective": plain.objective,
        "advantage": plain.advantage,
        "distillation": plain.distillation,
    }
    assert replace(config, **parts) == plain


@pytest.mark.parametrize("order", [1, -1])
def test_a_key_given_by_itself_wins_over_the_algorithm_in_any_order(order: int) -> None:
    config = load_config(None, ["algorithm=gspo", "advantage.alpha=0.1"][::order])

    assert (config.objective.ratio, config.advantage.alpha) == ("sequence", 0.1)


def test_the_values_of_a_file_win_over_the_algorithm_that_it_names(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, "algorithm: grpo\nobjective: {clip_high: 0.3}"), [])

    assert (config.objective.clip_high, config.objective.kl_coefficient) == (0.3, 0.001)


@pytest.mark.parametrize("path", ["/models/one", "s3://models/a b=c, d", "models/{x}: y"])
def test_a_given_model_is_not_taught_from_nothing(tmp_path: Path, path: str) -> None:
    assert load_config(None, [f"policy.path='{path}'"]).warm_start.steps == 0
    named = tmp_path / "named.yaml"
    named.write_text(f"policy: {{path: '{path}'}}\n")
    assert load_config(named, []).warm_start.steps == 0
    assert load_config(named, ["policy.path="]).warm_start.steps == 500


def test_a_given_model_is_taught_where_that_is_said(tmp_path: Path) -> None:
    for order in (1, -1):
        config = load_config(None, ["policy.path=/models/one", "warm_start.steps=60"][::order])
        assert config.warm_start.steps == 60
    named = tmp_path / "named.yaml"
    named.write_text("policy: {path: /models/one}\nwarm_start: {steps: 60}\n")
    assert load_config(named, []).warm_start.steps == 60
    assert load_config(named, ["policy.path=/models/two"]).warm_start.steps == 60
    named.write_text("warm_start: {steps: 60}\n")
    assert load_config(named, ["policy.path=/models/two"]).warm_start.steps == 0


def test_a_pretrained_model_begins_with_the_papers_values_and_a_small_one_keeps_its_own(
    tmp_path: Path,
) -> None:
    def key_values(*overrides: str, file: Path | None = None) -> tuple[float, float, int]:
        config = load_config(file, overrides)
        return config.learner.lr, config.advantage.alpha, config.rollout.max_answer_tokens

    (tmp_path / "config.json").write_text("{}")
    given = f"policy.path={tmp_path}"
    assert key_values() == (2e-4, 1.0, 8)
    assert key_values(given) == key_values("policy.path=Qwen/Qwen3-4B") == (1e-6, 0.1, 16384)
    for order in (1, -1):
        assert key_values(*[given, "learner.lora_rank=8"][::order], "learner.zero_stage=0") == (
            1e-5,
            0.1,
            16384,
        )
        assert key_values(*[given, "learner.lr=3e-5"][::order]) == (3e-5, 0.1, 16384)
    file = tmp_path / "run.yaml"
    file.write_text("learner: {lora_rank: 8, zero_stage: 0}\nadvantage: {alpha: 0.5}\n")
    assert key_values(given, file=file) == (1e-5, 0.1, 16384)
    file.write_text(f"policy: {{path: {tmp_path}}}\nadvantage: {{alpha: 0.5}}\n")
    assert key_values(file=file) == (1e-6, 0.5, 16384)
    assert key_values("policy.path=/another", file=file) == (1e-6, 0.5, 16384)
    assert load_config(None, [given, "warm_start.steps=9"]).warm_start.lr == 1e-5
    note = pretrained_note(load_config(None, [given, "learner.lr=3e-5"]))
    assert all(fact in note for fact in (str(tmp_path), "learner.lr=3e-05", "advantage.alpha=0.1"))
    (tmp_path / "config.json").write_text(f'{{"{SMALL_POLICY_KEY}": true}}')
    assert key_values(given) == (2e-4, 1.0, 8)
    assert pretrained_note(load_config(None, [given])) == pretrained_note(TrainConfig()) == ""


def test_every_contradiction_is_listed_at_once() -> None:
    message = refusal(
        "objective.ratio=sequence",
        "objective.kl_coefficient=0.1",
        "objective.reference=none",
        "learner.lora_rank=8",
        "learner.zero_stage=3",
        "policy.path=/somewhere",
        "learner.mini_batches=17",
    )

    found = message.split("; ")
    assert len(found) == 4
    assert "needs learner.zero_stage 0 or 2, got 3" in found[0]
    assert "objective.clip_low=0.2" in found[1]
    assert "objective.reference=start" in found[2]
    assert "learner.mini_batches must be at most" in found[3]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["learner.zero_stage=0", "learner.dtype=bfloat16"],
            "learner.dtype=bfloat16 needs learner.zero_stage 1, 2 or 3",
        ),
        (
            ["learner.zero_stage=0", "learner.dtype=float32", "learner.offload_optimizer=true"],
            "learner.offload_optimizer needs learner.zero_stage 1, 2 or 3, got 0",
        ),
        (["learner.lora_rank=8", "learner.zero_stage=2"], "learner.lora_rank=8 needs policy.path"),
        (["rollout.dynamic_sampling=2", "rollout.group_size=1"], "dynamic_sampling needs rollout."),
        (["advantage.step_weight=1", "rollout.group_size=1"], "advantage.step_weight needs"),
        (["advantage.overlong_buffer=9", "rollout.group_size=1"], "overlong_buffer needs"),
        (["algorithm=dapo", "advantage.permute_credit=true"], "advantage.alpha=0"),
        (["algorithm=dapo", "advantage.level=trajectory_sum"], "advantage.level has no effect"),
        (["advantage.level=trajectory_mean", "rollout.group_size=1"], "advantage.level needs"),
        (["advantage.shift=0", "advantage.idle_price=-1"], "leave out advantage.idle_price=-1"),
        (["advantage.shift=0", "oracle=none"], "advantage.shift=0 needs costs in moves"),
        (["advantage.idle_price=-1", "oracle=turn_reward"], "would replace rewards"),
        (["oracle=none"], "oracle=none gives turns no credit"),
        (["algorithm=distill_reverse", "advantage.step_weight=1"], "advantage.step_weight=0"),
        (["algorithm=distill_reverse", "advantage.alpha=0.1"], "set advantage.alpha=0"),
        (["algorithm=distill_forward", "advantage.overlong_buffer=9"], "overlong_buffer=0"),
        (["algorithm=distill_forward", "objective.kl_coefficient=1"], "kl_coefficient=0"),
    ],
)
def test_values_that_contradict_each_other_are_refused(overrides: list[str], message: str) -> None:
    assert message in refusal(*overrides)


@pytest.mark.parametrize("algorithm", ["grpo", "dapo", "gspo", "gigpo"])
def test_algorithm_that_compares_within_groups_refuses_groups_of_one(algorithm: str) -> None:
    message = refusal(f"algorithm={algorithm}", "rollout.group_size=1")
    assert f"algorithm={algorithm} with advantage.alpha=0" in message
    assert "rollout.group_size >= 2, got 1" in message
    load_config(None, [f"algorithm={algorithm}", "rollout.group_size=2"])


@pytest.mark.parametrize("algorithm", ["cast", "distill_reverse", "distill_forward"])
def test_a_signal_of_its_own_needs_no_group(algorithm: str) -> None:
    config = load_config(None, [f"algorithm={algorithm}", "rollout.group_size=1"])
    assert config.rollout.group_size == 1


@pytest.mark.parametrize(
    "text",
    [
        f"/runs/{ODD_NAME}",
        "a: b",
        "{a}",
        "[a]",
        "yes",
        "null",
        "01",
        "1e3",
        "12:30:45",
        "*a",
        " a ",
    ],
)
def test_a_text_is_taken_as_it_is_and_survives_the_file(text: str, tmp_path: Path) -> None:
    config = load_config(None, [f"run_dir={text}"])
    assert config.run_dir == text
    save_config(config, tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml", []).run_dir == text


def test_a_text_of_a_value_network_is_taken_as_it_is() -> None:
    assert load_value_net_config(None, [f"run_dir={ODD_NAME}"]).run_dir == ODD_NAME
    with refused(ConfigError, "device", "'null'", "'cuda'"):
        load_value_net_config(None, ["device=null"])
