"""Functions of the user's: found by name, pinned to their source, held to their shapes."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from cast_ray.algorithms.credit import add_advantages, add_credit
from cast_ray.algorithms.objective import LossShare, TokenInputs, policy_loss
from cast_ray.cluster.submit import pack_job, train_job
from cast_ray.config.learning import AdvantageConfig, ObjectiveConfig
from cast_ray.config.load import load_config, save_config
from cast_ray.errors import CallbackError, ConfigError
from cast_ray.functions import find_function, keep_sources, pinned_name, sources_of
from cast_ray.training.schedule import informative_groups
from tests.support.credit_tables import changed, scored
from tests.support.refusals import refused

EXTENSIONS = Path(__file__).parents[1] / "extensions"
RLOO = f"{EXTENSIONS / 'rloo.py'}:leave_one_out"
SHORT = f"{EXTENSIONS / 'short_solutions.py'}:short_solutions"
CISPO = f"{EXTENSIONS / 'cispo.py'}:cispo"


def played() -> pa.Table:
    """Return two groups: three episodes, two of them won, and two episodes, both lost."""
    won = [4.0, 3.0, 2.0, 1.0, 0.0]
    return scored(
        (changed(4, group=0, episode=0, reward=1.0), won),
        (changed(1, group=0, episode=1, reward=1.0), [1.0, 0.0]),
        (changed(2, group=0, episode=2, reward=0.0), [2.0, 3.0, float("inf")]),
        (changed(1, group=1, episode=0, reward=0.0), [2.0, 2.0]),
        (changed(2, group=1, episode=1, reward=0.0), [2.0, 1.0, 1.0]),
    )


def written(folder: Path, source: str, name: str = "f") -> str:
    (folder / "mine.py").write_text(source)
    return f"{folder / 'mine.py'}:{name}"


def credit_by(function: str, **values: float) -> pa.Table:
    config = AdvantageConfig(function=function, **values)
    return add_advantages(played(), config, response_tokens=100)[0]


def test_leave_one_out_replaces_the_comparison_and_the_solver_is_still_added() -> None:
    ours, plain = credit_by(RLOO, alpha=0.5), credit_by("", alpha=0.5)
    # Each reward less the mean of the others in its group; the second group has no win.
    np.testing.assert_allclose(ours["outcome_advantage"].to_numpy(), [0.5, 0.5, -1, 0, 0])
    assert ours["solver_advantages"].equals(plain["solver_advantages"])
    turns = np.array(ours["turn_advantages"][1].as_py())
    np.testing.assert_allclose(turns, 0.5 + 0.5 * np.array(ours["solver_advantages"][1].as_py()))


def test_a_value_per_turn_is_what_the_turns_are_trained_with(tmp_path: Path) -> None:
    name = written(
        tmp_path, "import numpy as np\ndef f(credit): return np.arange(credit.num_turns.sum())"
    )
    batch = credit_by(name, alpha=0.0)
    assert batch["turn_advantages"].to_pylist() == [[0, 1, 2, 3], [4], [5, 6], [7], [8, 9]]
    assert batch["token_advantages"][2].as_py() == [0, 5, 5, 0, 6, 6]


def test_reward_function_counts_in_the_outcome_and_the_game_keeps_its_own() -> None:
    config = load_config(None, [f"reward.function={SHORT}", "advantage.alpha=0"])
    batch = add_credit(played(), config, step=1)[0]
    worth = np.array([0.5 + 0.5 * (1 - 4 / 12), 0.5 + 0.5 * (1 - 1 / 12), 0.0])
    expected = (worth - worth.mean()) / (worth.std() + config.advantage.delta)
    np.testing.assert_allclose(batch["outcome_advantage"].to_numpy()[:3], expected)
    assert batch["reward"].to_pylist() == [1, 1, 0, 0, 0]


def test_dynamic_sampling_looks_at_the_functions_rewards(tmp_path: Path) -> None:
    assert informative_groups(played()).tolist() == [0]
    by_length = written(tmp_path, "def f(trajectory): return len(trajectory.actions)")
    assert informative_groups(played(), by_length).tolist() == [0, 1]


def tokens(num: int = 6) -> TokenInputs:
    rng = torch.Generator().manual_seed(3)
    learner, start = torch.randn(2, num, generator=rng) * 0.3 - 1
    return TokenInputs(
        learner_logprobs=learner.requires_grad_(),
        entropy=torch.ones(num),
        start_logprobs=start,
        advantages=torch.randn(num, generator=rng),
        reference_logprobs=None,
        rollout_weights=torch.ones(num),
        weights=torch.full((num,), 1 / num),
        trajectory=torch.zeros(num, dtype=torch.int64),
    )


def share(loss: str, of: TokenInputs) -> LossShare:
    return policy_loss(ObjectiveConfig(loss=loss), of)


def test_cispo_has_a_gradient_where_the_surrogate_is_clipped() -> None:
    inputs = tokens()
    found = share(CISPO, inputs)
    found.loss.backward()
    ratio = torch.exp(inputs.learner_logprobs - inputs.start_logprobs).detach()
    expected = -ratio.clamp(max=1.28) * inputs.advantages / len(ratio)
    torch.testing.assert_close(inputs.learner_logprobs.grad, expected)
    assert (ratio > 1.28).any(), "otherwise this shows nothing"
    assert found.num_clipped == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('gone')", r"failed: KeyError: 'gone' \(.*mine\.py, line 1\)"),
        ("return [1.0]", r"the shape \[5\], one per trajectory or \[10\], one per turn; got \[1\]"),
        ("return [0.0, 1.0, float('nan'), 0.0, 0.0]", r"finite numbers; number 2 is nan"),
        ("return ['a'] * 5", r"returned no numbers"),
        ("return None", r"got \[\]|returned no numbers"),
        ("credit.solver[0] = 1; return credit.rewards", r"read-only \(.*mine\.py, line 1\)"),
    ],
)
def test_wrong_advantages_are_named(tmp_path: Path, body: str, message: str) -> None:
    name = written(tmp_path, f"def f(credit): {body}")
    with pytest.raises(CallbackError, match=message) as caught:
        credit_by(name)
    assert f"advantage.function={name}" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return ratio.sum()", r"a tensor \[6\], one per token; got \[\]"),
        ("return 1.0", r"a tensor \[6\], one per token; got float"),
        ("return ratio / 0", "NaN or infinity"),
        ("tokens.advantages.zero_(); return ratio", "must not change the tensors"),
    ],
)
def test_wrong_losses_are_named(tmp_path: Path, body: str, message: str) -> None:
    name = written(tmp_path, f"def f(ratio, tokens, objective): {body}")
    with pytest.raises(CallbackError, match=message) as caught:
        share(name, tokens())
    assert f"objective.loss={name}" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1", "AttributeError"),
        ("def f(): pass", r"\(line 1\) must be .* 1 positional argument: too many"),
        ("f = 3", "must be a function"),
        ("import nowhere_at_all", r"ModuleNotFoundError.*mine\.py, line 1"),
        ("def f(:", "SyntaxError"),
    ],
)
def test_what_is_no_such_function_is_refused(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        find_function("reward.function", written(tmp_path, source), 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["rloo", ":f", "mine.py", "mine.py:", "mine.py:f:g"])
def test_what_names_no_function_is_refused(name: str) -> None:
    with refused(ConfigError, "advantage.function", "path/file.py:name", repr(name)):
        load_config(None, [f"advantage.function={name}"])


@pytest.mark.parametrize("name", ["gone.py:f", "no.such.module:f", "cast_ray.nothing:f"])
def test_a_function_without_a_source_is_refused_when_the_configuration_is_read(name: str) -> None:
    with refused(ConfigError, f"advantage.function={name}", "does not exist"):
        load_config(None, [f"advantage.function={name}"])


def test_reading_a_configuration_pins_the_source_and_imports_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    name = written(tmp_path, f"open({str(mark)!r}, 'w')\ndef f(trajectory): return 1.0")
    config = load_config(None, [f"reward.function={name}"])
    assert re.fullmatch(re.escape(name) + "@[0-9a-f]{16}", config.reward.function)
    save_config(config, tmp_path / "config.yaml")
    (tmp_path / "mine.py").unlink()  # looking at a run does not need the source
    assert load_config(tmp_path / "config.yaml", []) == config
    assert not mark.exists()


def test_a_source_that_has_changed_is_not_run(tmp_path: Path) -> None:
    name = written(tmp_path, "def f(trajectory): return 1.0")
    pinned = pinned_name("reward.function", name)
    written(tmp_path, "def f(trajectory): return 2.0")
    with refused(ConfigError, "reward.function", "mine.py", "restore it", f"={name}"):
        find_function("reward.function", pinned, 1)


def test_a_modules_source_is_found_without_running_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('was imported')")
    (package / "inner.py").write_text("def f(trajectory): return 1.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    pinned = pinned_name("reward.function", "my_package.inner:f")
    assert pinned.startswith("my_package.inner:f@")
    (package / "__init__.py").write_text("")
    assert find_function("reward.function", pinned, 1)(None) == 1.0
    sys.modules.pop("my_package", None)


def test_a_file_travels_to_hosts_that_do_not_have_it(tmp_path: Path) -> None:
    name = written(tmp_path, "def f(trajectory): return 7.0")
    pinned = pinned_name("reward.function", name)
    sources = sources_of({"reward.function": pinned})
    (tmp_path / "mine.py").unlink()
    keep_sources(sources)
    assert find_function("reward.function", pinned, 1)(None) == 7.0


def test_a_job_takes_the_file_along(tmp_path: Path) -> None:
    name = written(tmp_path, "def f(credit): return credit.rewards")
    config = load_config(None, [f"advantage.function={name}", "run_dir=/shared/runs/mine"])
    job = train_job(config, name="mine", overrides=["steps=1"], config_file=None, resume=False)
    folder = tmp_path / "job"
    folder.mkdir()
    pack_job(folder, config_file=None, functions=job.functions, with_code=False)
    [sent] = re.findall(r"advantage\.function=(\S+)", job.command)
    file, digest = sent.split(":")[0], sent.split("@")[1]
    assert (folder / file).read_bytes() == (tmp_path / "mine.py").read_bytes()
    assert config.advantage.function.endswith(digest)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["algorithm=grpo", f"advantage.function={RLOO}"], "algorithm=grpo .*advantage.function="),
        (["algorithm=gspo", f"objective.loss={CISPO}"], "algorithm=gspo .*objective.loss="),
        ([f"advantage.function={RLOO}", "advantage.step_weight=1"], "advantage.step_weight=1"),
    ],
)
def test_a_function_beside_what_it_would_replace_is_refused(
    overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, overrides)


def test_a_group_of_one_may_have_a_function_of_its_own() -> None:
    config = load_config(
        None, [f"advantage.function={RLOO}", "advantage.alpha=0", "rollout.group_size=1"]
    )
    assert replace(config.advantage, function="").alpha == 0


def test_the_page_about_them_shows_these_files() -> None:
    page = EXTENSIONS.parents[1] / "docs" / "functions.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S)
    files = [Path(name.rpartition(":")[0]) for name in (SHORT, RLOO, CISPO)]
    assert blocks == [file.read_text() for file in files]
