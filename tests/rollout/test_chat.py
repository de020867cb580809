"""The chat pieces joined equal the template applied to the whole conversation, token for token."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Template
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from cast_ray.errors import ModelError
from cast_ray.learner.small_policy import END_OF_TURN
from cast_ray.rollout.chat import ChatTokenizer, Conversation
from cast_ray.rollout.chat_template import CHATML, cut_chat_template, read_chat_pieces
from tests.support.refusals import refused
from tests.support.rooms import FIXED, rooms
from tests.support.scripted import GAME, build_test_policy

Messages = Sequence[tuple[str, str]]

WITH_DEFAULT_SYSTEM = """\
{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role != 'system' %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
"""In the manner of Qwen: a system prompt of its own where none is given."""


def renderer(template: str) -> Callable[[Messages], str]:
    compiled = Template(template)

    def render(messages: Messages) -> str:
        return compiled.render(
            messages=[{"role": role, "content": content} for role, content in messages],
            add_generation_prompt=True,
        )

    return render


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("policy")
    build_test_policy(directory)
    return directory


@pytest.fixture(scope="module")
def reference(model_dir: Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(model_dir, local_files_only=True)


@pytest.fixture(scope="module")
def ours(model_dir: Path) -> ChatTokenizer:
    return ChatTokenizer(model_dir, read_chat_pieces(model_dir))


def joined(tokenizer: ChatTokenizer, boards: list[str], answers: list[str]) -> list[int]:
    """Return the ids of a conversation as episodes build it, waiting for the next answer."""
    observations = [GAME.observe(GAME.decode(board)) for board in boards]
    talk = Conversation.start(tokenizer.opening(GAME.rules, observations[0]))
    for answer, observation in zip(answers, observations[1:], strict=True):
        ids = tokenizer.answer(answer)
        talk.append_answer(ids, [0.0] * len(ids), [1] * len(ids))
        talk.append_observation(tokenizer.observation(observation))
    return talk.token_ids


def whole(boards: list[str], answers: list[str]) -> list[tuple[str, str]]:
    """Return the same conversation as messages."""
    observations = [GAME.observe(GAME.decode(board)) for board in boards]
    messages = [("system", GAME.rules), ("user", observations[0])]
    for answer, observation in zip(answers, observations[1:], strict=True):
        messages += [("assistant", answer), ("user", observation)]
    return messages


def conversations(answer: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[list[str], list[str]]]:
    return st.integers(0, 3).flatmap(
        lambda turns: st.tuples(
            st.lists(rooms(), min_size=turns + 1, max_size=turns + 1),
            st.lists(answer, min_size=turns, max_size=turns),
        )
    )


ANSWERS = st.sampled_from(["```Up```", "Think.\n\n```Right```", " ", "\n", ""]) | st.text(
    # A policy cannot write the text of a special token: its tokens are kept, never re-read.
    st.characters(exclude_characters="<|>", exclude_categories=["Cs"]),
    max_size=30,
)


@FIXED
@given(conversations(ANSWERS))
def test_pieces_joined_equal_the_template_of_our_tokenizer(
    ours: ChatTokenizer, reference: PreTrainedTokenizerFast, talk: tuple[list[str], list[str]]
) -> None:
    messages = [{"role": role, "content": text} for role, text in whole(*talk)]
    expected = reference.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=False
    )
    assert joined(ours, *talk) == expected


@FIXED
@given(conversations(ANSWERS))
def test_pieces_joined_equal_a_template_with_a_default_system_prompt(
    model_dir: Path, reference: PreTrainedTokenizerFast, talk: tuple[list[str], list[str]]
) -> None:
    render = renderer(WITH_DEFAULT_SYSTEM)
    tokenizer = ChatTokenizer(model_dir, cut_chat_template(render, [END_OF_TURN]))
    expected = reference.encode(render(whole(*talk)), add_special_tokens=False)
    assert joined(tokenizer, *talk) == expected


@pytest.mark.parametrize("template", [CHATML, WITH_DEFAULT_SYSTEM])
def test_given_system_prompt_replaces_the_templates_own(template: str) -> None:
    pieces = cut_chat_template(renderer(template), [END_OF_TURN])
    assert pieces.before_system == "<|im_start|>system\n"
    assert pieces.after_answer == "\n<|im_start|>user\n"


def test_board_cells_are_one_token_each(ours: ChatTokenizer) -> None:
    ids = ours.answer("#_OX*PS\nPX#")[:-1]
    assert [ours.text([token]) for token in ids] == list("#_OX*PS\nPX#")


@FIXED
@given(st.text(st.characters(exclude_characters="<|>", exclude_categories=["Cs"]), max_size=60))
def test_text_survives_the_way_through_tokens(ours: ChatTokenizer, text: str) -> None:
    ids = ours.answer(text)
    assert ids[-1] == ours.end_ids[0]
    assert ours.text(ids) == text


def edited(model_dir: Path, target: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Return a copy of a model directory with another tokenizer.json."""
    shutil.copytree(model_dir, target)
    file = target / "tokenizer.json"
    values = json.loads(file.read_text())
    change(values)
    file.write_text(json.dumps(values))
    return target


def test_stored_truncation_and_padding_change_no_token(model_dir: Path, tmp_path: Path) -> None:
    limits = {
        "truncation": {"direction": "Right", "max_length": 8, "strategy": "LongestFirst"}
        | {"stride": 0},
        "padding": {"strategy": {"Fixed": 4096}, "direction": "Right", "pad_to_multiple_of": None}
        | {"pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"},
    }
    directory = edited(model_dir, tmp_path / "cut", lambda values: values.update(limits))
    pieces = read_chat_pieces(directory)
    as_stored = Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert len(as_stored.encode(GAME.rules).ids) == 4096  # the limits of the file are in force
    ours = ChatTokenizer(directory, pieces)
    assert ours.opening(GAME.rules, "x") == ChatTokenizer(model_dir, pieces).opening(
        GAME.rules, "x"
    )


def test_blanks_that_the_end_of_a_turn_swallows_are_not_encoded(
    model_dir: Path, tmp_path: Path
) -> None:
    def swallow(values: dict[str, Any]) -> None:
        for token in values["added_tokens"]:
            token["rstrip"] = True

    directory = edited(model_dir, tmp_path / "swallows", swallow)
    pieces = read_chat_pieces(directory)
    ours = ChatTokenizer(directory, pieces)
    raw = Tokenizer.from_file(str(directory / "tokenizer.json"))
    whole = [("system", "Rules."), ("user", " Board"), ("assistant", "```Up``` "), ("user", "\n#")]
    built = [*ours.opening("Rules.", " Board"), *ours.answer("```Up``` "), *ours.observation("\n#")]
    assert built == raw.encode(pieces.join(whole), add_special_tokens=False).ids
    assert pieces.after_answer[0] == "\n"  # the blank that is at stake


@pytest.mark.parametrize(
    ("stated", "others"), [(2, ()), ([2, 0], (0,)), ([0], (0,)), (None, ()), ([1, 0], (1, 0))]
)
def test_every_end_of_the_generation_config_ends_an_answer(
    model_dir: Path, tmp_path: Path, stated: object, others: tuple[int, ...]
) -> None:
    directory = Path(shutil.copytree(model_dir, tmp_path / "ends"))
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": stated}))
    ours = ChatTokenizer(directory, read_chat_pieces(directory))
    assert ours.end_ids == (2, *others)
    assert all(ours.text([*ours.answer("Up")[:-1], end]) == "Up" for end in ours.end_ids)


def test_end_of_a_turn_is_no_text_of_the_answer_even_if_it_is_no_special_token(
    model_dir: Path, tmp_path: Path
) -> None:
    def name_plain(values: dict[str, Any]) -> None:
        for token in values["added_tokens"]:
            token["special"] = False

    directory = edited(model_dir, tmp_path / "plain", name_plain)
    ours = ChatTokenizer(directory, read_chat_pieces(model_dir))
    assert ours.text(ours.answer("Up")) == "Up"


def test_longest_special_token_ends_a_turn() -> None:
    pieces = cut_chat_template(renderer(CHATML), ["<|im", END_OF_TURN, "<|im_end"])
    assert (pieces.end_of_turn, pieces.after_answer) == (END_OF_TURN, "\n<|im_start|>user\n")


@pytest.mark.parametrize("content", ['{"eos_token_id": ["a"]}', "[]", "{", '{"eos_token_id": {}}'])
def test_damaged_generation_config_is_refused(
    model_dir: Path, tmp_path: Path, content: str
) -> None:
    directory = Path(shutil.copytree(model_dir, tmp_path / "ends"))
    (directory / "generation_config.json").write_text(content)
    with refused(ModelError, str(directory / "generation_config.json"), "eos_token_id"):
        read_chat_pieces(directory)


def test_tokenizer_that_cannot_be_read_is_refused(model_dir: Path, tmp_path: Path) -> None:
    pieces = read_chat_pieces(model_dir)
    directory = Path(shutil.copytree(model_dir, tmp_path / "broken"))
    (directory / "tokenizer.json").write_text("{")
    with refused(ModelError, str(directory / "tokenizer.json")):
        ChatTokenizer(directory, pieces)
    with refused(ModelError, str(directory)):
        read_chat_pieces(directory)


def test_tokenizer_that_does_not_know_the_end_of_a_turn_is_refused(model_dir: Path) -> None:
    render = renderer(CHATML.replace("<|im_end|>", "<|over|>"))
    with refused(ModelError, "'<|over|>'"):
        ChatTokenizer(model_dir, cut_chat_template(render, ["<|over|>"]))
