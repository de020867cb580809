"""The chat pieces joined equal the template applied to the whole conversation, token for token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Template
from transformers import PreTrainedTokenizerFast

from cast_ray.errors import ModelError
from cast_ray.learner.small_policy import CHAT_TEMPLATE, END_OF_TURN
from cast_ray.rollout.chat import ChatTokenizer, Conversation, cut_chat_template, read_chat_pieces
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

FORGETS_EARLIER_REASONING = """\
{%- for message in messages %}
    {%- set is_old = message.role == 'assistant' and not loop.last %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if is_old %}{{- message.content.split('</think>')[-1] }}
    {%- elif message.role == 'assistant' %}{{- '<think></think>' + message.content }}
    {%- else %}{{- message.content }}{% endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{% endif %}
"""
"""In the manner of reasoning models: what is thought is shown while it is new and dropped after."""


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
    tokenizer = ChatTokenizer(model_dir, cut_chat_template(render, END_OF_TURN))
    expected = reference.encode(render(whole(*talk)), add_special_tokens=False)
    assert joined(tokenizer, *talk) == expected


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, WITH_DEFAULT_SYSTEM])
def test_given_system_prompt_replaces_the_templates_own(template: str) -> None:
    pieces = cut_chat_template(renderer(template), END_OF_TURN)
    assert pieces.before_system == "<|im_start|>system\n"
    assert pieces.after_answer == "\n<|im_start|>user\n"


DROPS_REASONING_OF_ANSWERS = CHAT_TEMPLATE.replace(
    "{{ message.content }}", "{{ message.content.split('</think>')[-1].lstrip() }}"
)
"""In the manner of hybrid models: nothing shows until an answer holds reasoning."""


@pytest.mark.parametrize(
    ("template", "facts"),
    [
        (FORGETS_EARLIER_REASONING, ["append"]),
        (DROPS_REASONING_OF_ANSWERS, ["append"]),
        ("{{ messages[-1].content }}", ["append"]),
        (CHAT_TEMPLATE.replace("<|im_end|>", "<|end|>"), [repr(END_OF_TURN), "eos_token"]),
        (CHAT_TEMPLATE.replace("in messages", "in messages[-2:]"), ["append", "instruct"]),
        ("{{ messages | length }}" + CHAT_TEMPLATE, ["append", "instruct"]),
        (CHAT_TEMPLATE + "{{ messages[0].content }}", ["append"]),
    ],
    ids=["reasoning", "hybrid", "last only", "other end", "window", "counts", "repeats"],
)
def test_template_that_cannot_be_appended_to_is_refused(template: str, facts: list[str]) -> None:
    with refused(ModelError, "chat template", *facts):
        cut_chat_template(renderer(template), END_OF_TURN)


def test_board_cells_are_one_token_each(ours: ChatTokenizer) -> None:
    ids = ours.answer("#_OX*PS\nPX#")[:-1]
    assert [ours.text([token]) for token in ids] == list("#_OX*PS\nPX#")


@FIXED
@given(st.text(st.characters(exclude_characters="<|>", exclude_categories=["Cs"]), max_size=60))
def test_text_survives_the_way_through_tokens(ours: ChatTokenizer, text: str) -> None:
    ids = ours.answer(text)
    assert ids[-1] == ours.end_of_turn_id
    assert ours.text(ids) == text


def test_directory_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with refused(ModelError, str(tmp_path), "config.json"):
        read_chat_pieces(tmp_path)


def test_tokenizer_without_a_chat_template_is_refused(model_dir: Path, tmp_path: Path) -> None:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model_dir, local_files_only=True)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text((model_dir / "config.json").read_text())
    with refused(ModelError, str(tmp_path), "chat template", "instruct"):
        read_chat_pieces(tmp_path)


def test_tokenizer_that_does_not_know_the_end_of_a_turn_is_refused(model_dir: Path) -> None:
    render = renderer(CHAT_TEMPLATE.replace("<|im_end|>", "<|over|>"))
    with refused(ModelError, "'<|over|>'"):
        ChatTokenizer(model_dir, cut_chat_template(render, "<|over|>"))
