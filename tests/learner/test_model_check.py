"""What ``cast-ray model check`` says of models that can be trained, only play, or do neither."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import Gemma2Config, Gemma2ForCausalLM
from typer.testing import CliRunner

from cast_ray.cli.main import app
from cast_ray.errors import ModelError
from cast_ray.learner.model_check import check_model, report_lines
from tests.support.refusals import refused
from tests.support.scripted import build_test_policy


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    build_test_policy(tmp_path)
    return tmp_path


def edit(file: Path, **values: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_a_model_that_can_be_trained_is_told_with_its_sizes(model_dir: Path) -> None:
    report = check_model(model_dir)
    config = json.loads((model_dir / "config.json").read_text())
    assert report.verdict == "plays, can be trained"
    assert report.chat_template == "own"
    assert report.context_length == config["max_position_embeddings"]
    values = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
    assert report.cache_tokens_per_gib == 2**30 // (2 * values)
    assert report.learner_gib == pytest.approx(report.num_parameters * 16 / 2**30)
    [ends] = report.end_ids
    assert ends == config["eos_token_id"]
    done = CliRunner().invoke(app, ["model", "check", str(model_dir), "--json"])
    assert json.loads(done.stdout)["num_parameters"] == report.num_parameters


def test_a_model_that_changes_its_logits_plays_and_cannot_be_trained(model_dir: Path) -> None:
    config = Gemma2Config(
        vocab_size=768,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        attn_logit_softcapping=None,
        final_logit_softcapping=30.0,
    )
    Gemma2ForCausalLM(config).bfloat16().save_pretrained(model_dir)
    report = check_model(model_dir)
    assert report.verdict == "plays, cannot be trained"
    assert "logits" in report.refused_by_learner
    assert any("logits" in line for line in report_lines(report))
    assert CliRunner().invoke(app, ["model", "check", str(model_dir)]).exit_code == 0


def test_quantised_weights_play_and_cannot_be_trained(model_dir: Path) -> None:
    edit(model_dir / "config.json", quantization_config={"quant_method": "awq", "bits": 4})
    report = check_model(model_dir)
    assert report.verdict == "plays, cannot be trained"
    assert "awq" in report.refused_by_learner


def test_a_template_that_is_never_right_makes_a_model_useless(model_dir: Path) -> None:
    (model_dir / "chat_template.jinja").write_text("{{ messages[-1].content }}")
    edit(model_dir / "config.json", eos_token_id=None)
    report = check_model(model_dir)
    assert report.chat_template != "own"


def test_an_unknown_kind_and_a_damaged_file_are_named(model_dir: Path) -> None:
    edit(model_dir / "config.json", model_type="of_the_future")
    with refused(ModelError, str(model_dir), "of_the_future"):
        check_model(model_dir)
    (model_dir / "config.json").write_text("{")
    with refused(ModelError, "config.json"):
        check_model(model_dir)
    assert CliRunner().invoke(app, ["model", "check", str(model_dir)]).exit_code == 1
