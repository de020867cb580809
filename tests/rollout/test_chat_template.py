"""Which chat templates are accepted, what replaces the others, and what the pieces survive.

The published templates are compared on Qwen3's own tokenizer, which is given each family's special
tokens; both lie outside the repository. Without them, small templates of our own are left.
"""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from cast_ray.config.load import load_config
from cast_ray.datasets.splits import Boards
from cast_ray.errors import ModelError
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import (
    CHATML,
    ChatPieces,
    cut_chat_template,
    read_chat_pieces,
    renderer_of,
    store_chat_pieces,
    stored_chat_pieces,
)
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.run import Run
from tests.support.refusals import refused
from tests.support.scripted import build_test_policy

Talk = list[tuple[str, str]]
Publish = Callable[[str, tuple[str, ...]], "Model"]

SHARED = Path(__file__).parents[3] / "shared/data"
TEMPLATES, TOKENIZER = SHARED / "chat_templates", SHARED / "tokenizers/qwen3"
needs_templates = pytest.mark.skipif(
    not (TEMPLATES.is_dir() and TOKENIZER.is_dir()), reason="published templates are not here"
)

NUM_TURNS = 12
ANSWERS = (
    "<think>\nIs it Up?\n</think>\n\n```Up```",
    "```Down``` \n",
    "It ends in blanks.\t  ",
    "A fence:\n```python\nmove('Up')\n```\n\n\n",
    "It looks like <|im_end, <|im_end |> or < |end|>.",
    "<|no_token|>[INST",
    "",
    "</think>```Left```",
    "Ünï \u27eaanswer\u27eb 箱",
)
MESSAGES = ("Board:\n#P_O#\nSteps left: 3", " a blank at both ends\n", "\n\n#_#", "ok")
PLAIN_ANSWERS, PLAIN_MESSAGES = ("```Up```", "I pass."), ("Board:\n#P_O#", "ok")


def talk(num_turns: int, answers: tuple[str, ...], messages: tuple[str, ...]) -> Talk:
    """Return a conversation that waits for an answer."""
    turns = zip(islice(cycle(answers), num_turns), islice(cycle(messages), num_turns), strict=True)
    found = [("system", "You play Sokoban.\n\nAnswer in a fence."), ("user", "Board:\n#P_O#")]
    for answer, message in turns:
        found += [("assistant", answer), ("user", message)]
    return found


DIFFICULT = talk(NUM_TURNS, ANSWERS, MESSAGES)
PLAIN = talk(NUM_TURNS, PLAIN_ANSWERS, PLAIN_MESSAGES)


def joined(tokenizer: ChatTokenizer, messages: Talk) -> list[int]:
    """Return the ids as episodes build them."""
    (_, system), (_, first), *later = messages
    ids = list(tokenizer.opening(system, first))
    for role, content in later:
        is_answer = role == "assistant"
        ids += tokenizer.answer(content) if is_answer else tokenizer.observation(content)
    return ids


@functools.cache
def reference(directory: Path) -> PreTrainedTokenizerFast:
    """Return transformers' own tokenizer of a directory."""
    return PreTrainedTokenizerFast.from_pretrained(directory, local_files_only=True)


@dataclass(frozen=True)
class Model:
    """A tokenizer's directory with a chat template; whatever template lies there."""

    directory: Path
    template: str

    def render(self, messages: Sequence[tuple[str, str]]) -> str:
        tokenizer = reference(self.directory)
        return renderer_of(tokenizer, self.template, name=str(self.directory))(messages)

    def pieces(self, *, append_only: bool = False) -> ChatPieces:
        return cut_chat_template(
            self.render,
            reference(self.directory).get_added_vocab(),
            name=str(self.directory),
            append_only=append_only,
        )

    def encode(self, text: str) -> list[int]:
        return reference(self.directory).encode(text, add_special_tokens=False)

    def whole(self, messages: Talk) -> list[int]:
        """Return the ids of the template applied to the whole conversation at once."""
        return self.encode(self.render(messages))

    def assert_appended(self, pieces: ChatPieces) -> None:
        """Check that a difficult conversation only grows, with every text as it was written."""
        tokenizer = ChatTokenizer(self.directory, pieces)
        ids = joined(tokenizer, DIFFICULT)
        for num_messages in range(2, len(DIFFICULT), 2):
            part = joined(tokenizer, DIFFICULT[:num_messages])
            assert ids[: len(part)] == part
        assert ids == self.encode(pieces.join(DIFFICULT))
        assert reference(self.directory).decode(ids) == pieces.join(DIFFICULT)


QWEN = "<|im_start|>", "<|im_end|>"
LLAMA = "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"
GEMMA = "<start_of_turn>", "<end_of_turn>", "<eos>"
PHI = "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"
MISTRAL = "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]", "</s>"
DEEPSEEK = "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"
GRANITE = "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"
COHERE = (
    "<|START_OF_TURN_TOKEN|>",
    "<|SYSTEM_TOKEN|>",
    "<|USER_TOKEN|>",
    "<|CHATBOT_TOKEN|>",
    "<|END_OF_TURN_TOKEN|>",
)
GPT_OSS = "<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>"
SHARE_ONE = (*QWEN, *LLAMA, *GEMMA, *MISTRAL, *DEEPSEEK, *GRANITE)


def with_tokens(directory: Path, special: Iterable[str], *, rstrip: bool = False) -> Path:
    """Write Qwen3's tokenizer with these special tokens instead of its own two."""
    values = json.loads((TOKENIZER / "tokenizer.json").read_text(encoding="utf-8"))
    first_id = max(token["id"] for token in values["added_tokens"]) + 1
    kept = [token for token in values["added_tokens"] if token["content"] not in QWEN]
    contents = [token["content"] for token in kept]
    flags = {"single_word": False, "lstrip": False, "normalized": False, "special": True}
    added = [
        {"id": first_id + number, "content": content, "rstrip": rstrip, **flags}
        for number, content in enumerate(dict.fromkeys(("<s>", *special)))
        if content not in contents
    ]
    values["added_tokens"] = [*kept, *added]
    (directory / "tokenizer.json").write_text(json.dumps(values))
    (directory / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    (directory / "config.json").write_text('{"model_type": "qwen3"}')
    return directory


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Publish:
    """Return a function from a published template and its family's special tokens to a model.

    The last token is ``eos_token``. Phi's tokens swallow the blanks after them, as in its own
    tokenizer. Other families share one where they can: it takes two seconds to load.
    """

    @functools.cache
    def directory_of(special: tuple[str, ...]) -> Path:
        return with_tokens(tmp_path_factory.mktemp("family"), special, rstrip=special is PHI)

    def publish(name: str, special: tuple[str, ...]) -> Model:
        shares = set(special) <= set(SHARE_ONE)
        directory = directory_of(SHARE_ONE if shares else special)
        reference(directory).eos_token = special[-1]
        return Model(directory, (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"))

    return publish


@needs_templates
@pytest.mark.parametrize(
    ("name", "special", "end"),
    [
        ("Qwen-Qwen2.5-7B-Instruct", QWEN, "<|im_end|>"),
        ("qwen3_instruct_2507", QWEN, "<|im_end|>"),
        ("Mistral-Small-3.2-24B-Instruct-2506", MISTRAL, "</s>"),
        ("ibm-granite-granite-3.3-2B-Instruct", GRANITE, "<|end_of_text|>"),
        ("phi3", PHI, "<|end|>"),
        ("microsoft-Phi-3.5-mini-instruct", PHI, "<|end|>"),
    ],
)
def test_accepted_template_gives_the_tokens_of_the_whole_conversation(
    name: str, special: tuple[str, ...], end: str, published: Publish
) -> None:
    model = published(name, special)
    pieces = model.pieces()
    assert pieces.end_of_turn == end
    assert joined(ChatTokenizer(model.directory, pieces), DIFFICULT) == model.whole(DIFFICULT)


@needs_templates
@pytest.mark.parametrize(
    ("name", "special", "is_same_for_plain_answers"),
    [
        ("Qwen-Qwen3-0.6B", QWEN, True),
        ("Qwen-QwQ-32B", QWEN, False),  # earlier answers lose the <think> they began with
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", DEEPSEEK, False),  # the same
        ("deepseek-ai-DeepSeek-V3.1", DEEPSEEK, True),
        ("mistralai-Mistral-Nemo-Instruct-2407", MISTRAL, False),  # the system prompt moves
        ("gemma3", GEMMA, True),
        ("meta-llama-Llama-3.1-8B-Instruct", LLAMA, True),
        ("meta-llama-Llama-3.2-3B-Instruct", LLAMA, True),
    ],
)
def test_rewriting_template_is_refused_and_append_only_begins_like_it(
    name: str, special: tuple[str, ...], is_same_for_plain_answers: bool, published: Publish
) -> None:
    model = published(name, special)
    with refused(ModelError, str(model.directory), "policy.chat_template=append_only"):
        model.pieces()
    pieces = model.pieces(append_only=True)
    tokenizer = ChatTokenizer(model.directory, pieces)
    assert joined(tokenizer, PLAIN[:2]) == model.whole(PLAIN[:2])
    assert (joined(tokenizer, PLAIN) == model.whole(PLAIN)) is is_same_for_plain_answers
    model.assert_appended(pieces)


@needs_templates
def test_gemma_2_gets_the_system_prompt_in_the_first_message_of_the_user(
    published: Publish,
) -> None:
    model = published("google-gemma-2-2b-it", GEMMA)
    with refused(ModelError, str(model.directory), "policy.chat_template=append_only"):
        model.pieces()
    pieces = model.pieces(append_only=True)
    for messages in (PLAIN[:2], PLAIN):
        ids = joined(ChatTokenizer(model.directory, pieces), messages)
        assert ids == model.whole(without_system_role(messages))
    model.assert_appended(pieces)


def without_system_role(messages: Talk) -> Talk:
    (_, system), (_, first), *later = messages
    return [("user", f"{system}\n\n{first}"), *later]


@needs_templates
@pytest.mark.parametrize(
    ("name", "special", "family", "text"),
    [
        (
            "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
            QWEN,
            "chatml",
            "<s><|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
            "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (
            "CohereForAI-c4ai-command-r-plus-tool_use",
            COHERE,
            "command_r",
            "<s><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|>"
            "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>U<|END_OF_TURN_TOKEN|>"
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>A<|END_OF_TURN_TOKEN|>"
            "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>V<|END_OF_TURN_TOKEN|>"
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        ),
    ],
)
def test_template_that_needs_tools_is_refused_and_its_family_suggested(
    name: str, special: tuple[str, ...], family: str, text: str, published: Publish
) -> None:
    model = published(name, special)
    for append_only in (False, True):
        with refused(ModelError, str(model.directory), f"policy.chat_template={family}"):
            model.pieces(append_only=append_only)
    pieces = read_chat_pieces(model.directory, family)
    assert pieces.join([("system", "S"), ("user", "U"), ("assistant", "A"), ("user", "V")]) == text
    model.assert_appended(pieces)


@needs_templates
def test_gpt_oss_is_refused_because_it_asks_for_channels(published: Publish) -> None:
    model = published("openai-gpt-oss-120b", GPT_OSS)
    for append_only in (False, True):
        with refused(ModelError, str(model.directory), "policy.chat_template=FILE"):
            model.pieces(append_only=append_only)


@needs_templates
def test_every_published_template_has_its_verdict() -> None:
    verdicts = Path(__file__).read_text(encoding="utf-8")
    names = [file.stem for file in TEMPLATES.glob("*.jinja")]
    assert len(names) >= 18 and all(f'"{name}"' in verdicts for name in names)


# The same on templates of our own, with the tokenizer of the small policy.

TRIMS = CHATML.replace("message.content", "message.content | trim")
DROPS_THOUGHTS = CHATML.replace("message.content", "message.content.split('</think>')[-1]")
BEGINS_A_THOUGHT = CHATML.replace("assistant\n{% endif", "assistant\n<think>{% endif")
MOVES_THE_SYSTEM_PROMPT = (
    "{% set system = messages[0].content if messages[0].role == 'system' %}"
    "{% for message in messages if message.role != 'system' %}<|im_start|>"
    "{% if loop.last and system %}{{ system }}|{% endif %}{{ message.content }}<|im_end|>"
    "{% endfor %}<|im_start|>"
)
HAS_NO_SYSTEM_ROLE = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    + CHATML
)
FORGETS_THE_SYSTEM_PROMPT = CHATML.replace(
    "in messages %}", "in messages if message.role != 'system' %}"
)
OTHER_END = CHATML.replace("<|im_end|>", "<|endoftext|>")
NEEDS_TOOLS = "{% for tool in tools %}{{ tool }}{% endfor %}" + CHATML
CHANNELS = CHATML.replace(
    "{{ message.content }}",
    "{{ '<final>' if message.role == 'assistant' }}{{ message.content }}",
)
PRINTS_TODAY = "{{ strftime_now('%Y-%m-%d') }}" + CHATML


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("policy") / "small"
    build_test_policy(directory)
    return directory


@pytest.fixture
def model_dir(small: Path, tmp_path: Path) -> Path:
    """Return a copy to write another template into."""
    return Path(shutil.copytree(small, tmp_path / "model"))


def write(model_dir: Path, template: str) -> None:
    (model_dir / "chat_template.jinja").write_text(template)


@pytest.mark.parametrize("template", [CHATML, OTHER_END], ids=["chatml", "end is not eos_token"])
def test_appendable_template_gives_the_tokens_of_the_whole_conversation(
    small: Path, template: str
) -> None:
    model = Model(small, template)
    assert joined(ChatTokenizer(small, model.pieces()), DIFFICULT) == model.whole(DIFFICULT)


@pytest.mark.parametrize(
    "template", [HAS_NO_SYSTEM_ROLE, FORGETS_THE_SYSTEM_PROMPT], ids=["refuses", "forgets"]
)
def test_template_without_a_system_role_gets_its_text_in_the_first_message(
    small: Path, template: str
) -> None:
    model = Model(small, template)
    ids = joined(ChatTokenizer(small, model.pieces()), DIFFICULT)
    assert ids == model.whole(without_system_role(DIFFICULT))


@pytest.mark.parametrize(
    ("template", "between"),
    [
        (TRIMS, "\n<|im_start|>user\n"),
        (DROPS_THOUGHTS, "\n<|im_start|>user\n"),
        (BEGINS_A_THOUGHT, "\n<|im_start|>user\n"),
        (MOVES_THE_SYSTEM_PROMPT, "<|im_start|>"),
    ],
    ids=["trims", "drops thoughts", "begins a thought", "moves the system prompt"],
)
def test_template_that_rewrites_is_refused_and_append_only_keeps_everything(
    model_dir: Path, template: str, between: str
) -> None:
    write(model_dir, template)
    with refused(ModelError, str(model_dir), "policy.chat_template=append_only"):
        read_chat_pieces(model_dir)
    pieces = read_chat_pieces(model_dir, "append_only")
    assert pieces.after_answer == between
    model = Model(model_dir, template)
    assert joined(ChatTokenizer(model_dir, pieces), PLAIN[:2]) == model.whole(PLAIN[:2])
    model.assert_appended(pieces)


@pytest.mark.parametrize(
    ("template", "facts"),
    [
        ("{% if %}", ["TemplateSyntaxError"]),
        (CHATML.replace("message.content", "message.content + eos_token"), ["eos_token"]),
        (CHATML.replace("message.content", "message.text.strip()"), ["UndefinedError"]),
        ("{{ raise_exception('not today') }}", ["not today"]),
        (NEEDS_TOOLS, ["NoneType", "policy.chat_template=chatml"]),
        (CHANNELS, ["policy.chat_template=chatml"]),
        ("{{ messages[-1].content }}", ["policy.chat_template=chatml"]),
        (CHATML + "{{ messages[0].content }}", ["repeats"]),
        (CHATML.replace("in messages", "in messages[-2:]"), ["drops"]),
        (CHATML.replace("<|im_end|>", "</over>"), ["'</over>\\n<|im_start|>user\\n'"]),
    ],
    ids=["syntax", "no eos_token", "undefined", "raises", "tools", "channels", "last", "repeats",
         "window", "end"],
)  # fmt: skip
@pytest.mark.parametrize("chosen", ["", "append_only"])
def test_template_that_no_piece_fits_is_refused_with_directory_and_remedy(
    model_dir: Path, template: str, facts: list[str], chosen: str
) -> None:
    write(model_dir, template)
    values = json.loads((model_dir / "tokenizer_config.json").read_text())
    (model_dir / "tokenizer_config.json").write_text(json.dumps(values | {"eos_token": None}))
    with refused(ModelError, str(model_dir), "policy.chat_template=", *facts) as caught:
        read_chat_pieces(model_dir, chosen)
    assert "\n" not in str(caught.value)


def test_missing_template_is_refused_and_another_may_be_given(
    model_dir: Path, small: Path, tmp_path: Path
) -> None:
    (model_dir / "chat_template.jinja").unlink()
    with refused(ModelError, str(model_dir), "missing", "policy.chat_template=chatml"):
        read_chat_pieces(model_dir)
    file = tmp_path / "mine.jinja"
    file.write_text(CHATML)
    assert read_chat_pieces(model_dir, str(file)) == read_chat_pieces(small)
    assert read_chat_pieces(model_dir, "chatml") == read_chat_pieces(small)
    file.write_text(TRIMS)
    with refused(ModelError, str(file), "append"):
        read_chat_pieces(model_dir, str(file))


def test_unknown_template_is_refused_with_the_known_names(small: Path) -> None:
    with refused(ModelError, "policy.chat_template=gema", "append_only", "chatml", "command_r"):
        read_chat_pieces(small, "gema")


def test_family_of_other_tokens_is_refused(small: Path) -> None:
    with refused(ModelError, "command_r", str(small), "<|END_OF_TURN_TOKEN|>"):
        read_chat_pieces(small, "command_r")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_directory_that_is_no_models_is_refused(model_dir: Path, name: str) -> None:
    (model_dir / name).unlink()
    with refused(ModelError, str(model_dir), name):
        read_chat_pieces(model_dir)


def test_code_that_comes_with_a_tokenizer_is_neither_run_nor_asked_about(
    model_dir: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[str, Any] = json.loads((model_dir / "tokenizer_config.json").read_text())
    values["auto_map"] = {"AutoTokenizer": ["code.Own", "code.Own"]}
    values["tokenizer_class"] = "Own"
    (model_dir / "tokenizer_config.json").write_text(json.dumps(values))
    own = {"model_type": "own", "auto_map": {"AutoConfig": "code.Own"}}
    (model_dir / "config.json").write_text(json.dumps(own))
    (model_dir / "code.py").write_text("raise SystemExit('run')")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked on the terminal"))
    assert read_chat_pieces(model_dir) == read_chat_pieces(small)


class Clock(datetime):
    """A day that a test chooses."""

    today_is = datetime(2026, 3, 1)

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return cls.today_is


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr(chat_template_utils, "datetime", Clock)
    monkeypatch.setattr(Clock, "today_is", datetime(2026, 3, 1))
    return Clock


def a_run(directory: Path, model_dir: Path) -> Run:
    config = load_config(None, [f"policy.path={model_dir}"])
    place = RunDirectory(directory)
    return Run(config, place, None, Boards(train=[], validation=[], held_out=[]), "id")  # type: ignore[arg-type]


def test_date_of_a_template_stays_that_of_the_runs_start(
    model_dir: Path, tmp_path: Path, clock: type[Clock]
) -> None:
    write(model_dir, PRINTS_TODAY)
    first = a_run(tmp_path / "run", model_dir).chat_pieces(model_dir)
    assert first.before_system.startswith("2026-03-01")
    clock.today_is = datetime(2026, 3, 2)
    assert read_chat_pieces(model_dir).before_system.startswith("2026-03-02")
    assert a_run(tmp_path / "run", model_dir).chat_pieces(model_dir) == first  # resumed
    assert stored_chat_pieces(tmp_path / "run") == first  # replayed


def test_pieces_stored_with_a_model_win_over_its_template_but_not_over_a_chosen_one(
    model_dir: Path, small: Path
) -> None:
    write(model_dir, TRIMS)
    pieces = read_chat_pieces(model_dir, "append_only")
    store_chat_pieces(pieces, model_dir)
    assert read_chat_pieces(model_dir) == pieces
    write(model_dir, "{% if %}")
    assert read_chat_pieces(model_dir) == pieces
    with refused(ModelError, "TemplateSyntaxError"):
        read_chat_pieces(model_dir, "append_only")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"other_end_ids": [], "more": 1}'])
def test_damaged_pieces_are_refused(model_dir: Path, content: str) -> None:
    (model_dir / "chat_pieces.json").write_text(content)
    with refused(ModelError, str(model_dir / "chat_pieces.json")):
        read_chat_pieces(model_dir)
