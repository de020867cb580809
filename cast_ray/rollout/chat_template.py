"""Chat templates, cut into pieces that are appended as a conversation grows.

A policy's tokens are kept as the engine returned them, so a conversation can only be appended to.
A template is accepted if its pieces, joined, are what it renders of the whole conversation at once.
Others drop thoughts, strip blanks or move the system prompt: ``append_only`` keeps what they ask
for on the first turn, and everything after it as it was written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from cast_ray.errors import ModelError
from cast_ray.files import checked, read_json, write_text

STORED_PIECES = "chat_pieces.json"
"""In a run directory and in the models that a run writes. A template may print today's date."""
APPEND_ONLY = "append_only"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_COMMAND_R = (
    "{% set names = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'} %}"
    "{% set start = '<|START_OF_TURN_TOKEN|><|' %}{{ bos_token }}"
    "{% for message in messages %}{{ start ~ names[message.role] }}_TOKEN|>{{ message.content }}"
    "<|END_OF_TURN_TOKEN|>{% endfor %}"
    "{% if add_generation_prompt %}{{ start }}CHATBOT_TOKEN|>{% endif %}"
)
FAMILIES: Mapping[str, tuple[str, str]] = {
    "chatml": ("<|im_end|>", "{{ bos_token }}" + CHATML),
    "command_r": ("<|END_OF_TURN_TOKEN|>", _COMMAND_R),
}
"""For models whose own template needs tools: by name, the token that tells the family, and text."""

_NEEDED = ("config.json", "tokenizer.json")
_SYSTEM, _FIRST, _ANSWER, _SECOND = (
    f"\u27ea{name}\u27eb" for name in ("system", "first", "answer", "second")
)
_PROBES = (
    ("<think>\nwhy\n</think>\n\n```Up```", " blanks around\n\n"),
    ("\n ```Down``` \n", "none"),
    ("", "``` <tool_response>"),
)
"""Answers that templates are known to change, each with the message after it."""

Messages: TypeAlias = Sequence[tuple[str, str]]
"""``[(role, content), …]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPieces:
    """The fixed texts of a chat template around system prompt, user messages and answers."""

    before_system: str
    before_first: str
    before_answer: str
    """From the first user message to the first token of the answer."""
    after_answer: str
    """From the answer's end-of-turn token (not included) to the next user message."""
    end_of_turn: str
    """The token with which the policy ends an answer."""
    other_end_ids: tuple[int, ...] = ()
    """Ids of further tokens that end one: the end-of-sequence ids of generation_config.json."""

    def join(self, messages: Messages) -> str:
        """Return ``[system, user, assistant, user, …]`` as text, with a generation prompt."""
        (_, system), (_, first), *later = messages
        text = self.before_system + system + self.before_first + first + self.before_answer
        after_answer = self.end_of_turn + self.after_answer
        for role, content in later:
            text += content + (after_answer if role == "assistant" else self.before_answer)
        return text


def cut_chat_template(
    render: Callable[[Messages], str],
    special_tokens: Collection[str],
    *,
    name: str = "the chat template",
    append_only: bool = False,
) -> ChatPieces:
    """Cut a chat template into pieces that can be appended one by one.

    If it refuses or drops a system message, that text comes first in the first user message.

    Args:
        render: renders messages with a generation prompt, as text.
        special_tokens: of the tokenizer; one of them must end an answer.
        name: of the template, for error messages.
        append_only: whether pieces are returned although the template changes earlier messages.

    Raises:
        ModelError: the template cannot be rendered or cut, or changes earlier messages.
    """

    def refuse(reason: str) -> NoReturn:
        raise ModelError(f"{name} {reason}; {_remedy(special_tokens)}")

    render = _with_system_role(render)
    opening = _around(render([("system", _SYSTEM), ("user", _FIRST)]), _SYSTEM, _FIRST)
    # Without a system message, which some templates move to the last message of the user.
    talk = [("user", _FIRST), ("assistant", _ANSWER), ("user", _SECOND)]
    later = _around(render(talk), _FIRST, _ANSWER, _SECOND)
    if not opening or not later:
        refuse("drops, repeats or reorders messages")
    before_system, before_first, before_answer = opening
    _, before_written, gap, before_next = later
    # Less than what asked for the answer is right, too: the beginning of a thought was dropped.
    if not before_answer.startswith(before_written) or before_next != before_answer:
        refuse("puts other text before an earlier answer than before a new one")
    ends = [token for token in special_tokens if token and gap.startswith(token)]
    if not ends:
        refuse(f"ends an answer with {gap!r}, which begins with no special token of the tokenizer")
    end_of_turn = max(ends, key=len)
    pieces = ChatPieces(
        before_system=before_system,
        before_first=before_first,
        before_answer=before_answer,
        after_answer=gap.removeprefix(end_of_turn),
        end_of_turn=end_of_turn,
    )
    messages = [("system", "Rules."), ("user", "Board:\n#")]
    for answer, message in [] if append_only else _PROBES:
        messages += [("assistant", answer), ("user", message)]
        if pieces.join(messages) != render(messages):
            raise ModelError(
                f"{name} changes earlier messages when the conversation grows (it drops thoughts, "
                f"strips blanks or moves the system prompt); set policy.chat_template={APPEND_ONLY}"
                " to keep them as they were written"
            )
    return pieces


def read_chat_pieces(model_dir: Path, chat_template: str = "") -> ChatPieces:
    """Return the chat pieces of a model directory: those stored there, or cut now.

    Args:
        model_dir: needs no weights.
        chat_template: ``policy.chat_template``; empty = what is stored, or the model's own.

    Raises:
        ModelError: the directory is no model directory, or its chat template is missing, broken or
            not append-only.
    """
    from transformers import PreTrainedTokenizerFast  # takes seconds; env runners do not need it

    missing = [name for name in _NEEDED if not (model_dir / name).is_file()]
    if missing:
        raise ModelError(
            f"{model_dir} is not a model directory: {missing[0]} is missing; give the path of a "
            "Hugging Face model directory"
        )
    if not chat_template and (stored := stored_chat_pieces(model_dir)):
        return stored
    try:
        # Not AutoTokenizer: that may want code from the directory or other tokenizer libraries.
        tokenizer = PreTrainedTokenizerFast.from_pretrained(
            model_dir, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # transformers raises whatever a broken file makes it raise
        raise ModelError(
            f"the tokenizer of {model_dir} cannot be read ({_one_line(error)}): restore its files"
        ) from error
    special = tokenizer.get_added_vocab()
    name, template = _chosen(chat_template, model_dir)
    if not template and not tokenizer.chat_template:
        raise ModelError(f"{name} is missing; {_remedy(special)}")
    render, is_kept = renderer_of(tokenizer, template, name=name), chat_template == APPEND_ONLY
    pieces = cut_chat_template(render, special, name=name, append_only=is_kept)
    return replace(pieces, other_end_ids=_end_ids(model_dir / "generation_config.json"))


def renderer_of(
    tokenizer: Any, template: str | None, *, name: str
) -> Callable[[Messages], str]:  # Any: annotations of transformers are too wide
    """Return how a tokenizer of transformers renders messages; template None = its own.

    The function raises ModelError, which says the template's ``name``.
    """

    def render(messages: Messages) -> str:
        try:
            return tokenizer.apply_chat_template(
                [{"role": role, "content": content} for role, content in messages],
                chat_template=template,
                tokenize=False,
                add_generation_prompt=True,
            )
        except Exception as error:  # a template is a program
            remedy = _remedy(tokenizer.get_added_vocab())
            raise ModelError(f"{name} cannot be applied ({_one_line(error)}); {remedy}") from error

    return render


def stored_chat_pieces(directory: Path) -> ChatPieces | None:
    """Return the pieces that ``store_chat_pieces`` wrote there; None if there are none.

    Raises:
        ModelError: the file is damaged.
    """
    path = directory / STORED_PIECES
    if not path.is_file():
        return None
    try:
        return checked(ChatPieces, read_json(path))
    except ValueError:
        raise ModelError(f"{path} is damaged: restore it from a copy of the directory") from None


def store_chat_pieces(pieces: ChatPieces, directory: Path) -> None:
    """Write pieces into a directory; see ``stored_chat_pieces``."""
    write_text(directory / STORED_PIECES, json.dumps(asdict(pieces), indent=1) + "\n")


def _with_system_role(render: Callable[[Messages], str]) -> Callable[[Messages], str]:
    """Return a function that renders every system prompt, if need be in the first user message."""
    try:
        if _SYSTEM in render([("system", _SYSTEM), ("user", _FIRST)]):
            return render
    except ModelError:  # if for another reason, the next attempt fails, too
        pass

    def with_joined(messages: Messages) -> str:
        if messages[0][0] != "system":
            return render(messages)
        (_, system), (_, first), *later = messages
        return render([("user", f"{system}\n\n{first}"), *later])

    return with_joined


def _around(text: str, *marks: str) -> list[str] | None:
    """Return the texts around marks; None unless each mark is there once, in this order."""
    pattern = "|".join(marks)
    return re.split(pattern, text) if re.findall(pattern, text) == [*marks] else None


def _chosen(chat_template: str, model_dir: Path) -> tuple[str, str | None]:
    """Return a chosen template's name for messages, and its text; None = the model's own."""
    if chat_template in ("", APPEND_ONLY):
        return f"the chat template of {model_dir}", None
    if chat_template in FAMILIES:
        return f"the chat template {chat_template} for {model_dir}", FAMILIES[chat_template][1]
    try:
        return f"the chat template {chat_template}", Path(chat_template).read_text(encoding="utf-8")
    except (OSError, ValueError):
        known = ", ".join((APPEND_ONLY, *FAMILIES))
        raise ModelError(
            f"policy.chat_template={chat_template} cannot be read: give a Jinja file, or one of "
            f"{known}"
        ) from None


def _remedy(special_tokens: Collection[str]) -> str:
    fit = [family for family, (token, _) in FAMILIES.items() if token in special_tokens]
    given = f"set policy.chat_template={fit[0]}" if fit else "give one by policy.chat_template=FILE"
    return f"{given}, or choose another model"


def _end_ids(path: Path) -> tuple[int, ...]:
    """Return the end-of-sequence ids of a generation_config.json; none if it is missing."""
    if not path.is_file():
        return ()
    try:
        found: Any = read_json(path).get("eos_token_id")  # Any: JSON
        ids = found if isinstance(found, list) else [] if found is None else [found]
        return tuple(map(int, ids))
    except (ValueError, AttributeError, TypeError):
        raise ModelError(
            f"{path} is damaged: eos_token_id must be a number or a list of numbers"
        ) from None


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
