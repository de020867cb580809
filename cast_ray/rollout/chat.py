"""Conversations as append-only token ids, and the chat template that they follow.

A policy's tokens are kept as the engine returned them, and never re-tokenised. The text between two
answers is cut out of the model's chat template once, and encoded separately; this is exact because
every cut is next to a special token, where tokenizers split anyway.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from cast_ray.errors import ModelError
from cast_ray.rollout.trajectory import NOT_THE_POLICY

_MAX_CACHED_TEXTS = 4096
_SYSTEM, _FIRST, _SECOND, _THIRD = (
    f"\u27ea{name}\u27eb" for name in ("system", "first", "second", "third")
)
# With a thought first, because some templates drop thoughts from earlier answers.
_ANSWER, _ANSWER_2 = (
    f"<think>\nwhy\n</think>\n\n\u27ea{name}\u27eb" for name in ("answer", "answer2")
)


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


def cut_chat_template(
    render: Callable[[Sequence[tuple[str, str]]], str], end_of_turn: str
) -> ChatPieces:
    """Cut a chat template into pieces that can be appended one by one.

    Args:
        render: renders ``[(role, content), …]`` with a generation prompt, as text.
        end_of_turn: text of the token that ends an answer.

    Raises:
        ModelError: the template re-writes earlier messages, or does not end an answer with
            ``end_of_turn``; such a model cannot hold an append-only conversation.
    """
    opening = [("system", _SYSTEM), ("user", _FIRST)]
    longer = [*opening, ("assistant", _ANSWER), ("user", _SECOND)]
    longest = [*longer, ("assistant", _ANSWER_2), ("user", _THIRD)]
    texts = [render(messages) for messages in (opening, longer, longest)]
    try:
        before_system, rest = texts[0].split(_SYSTEM)
        before_first, before_answer = rest.split(_FIRST)
        head, tail = texts[1].split(_ANSWER)
        gap, before_second_answer = tail.split(_SECOND)
        head_2, tail_2 = texts[2].split(_ANSWER_2)
        gap_2, _ = tail_2.split(_THIRD)
    except ValueError:
        raise ModelError(
            "the chat template drops or repeats a message; a conversation cannot be appended to it"
        ) from None
    if head != texts[0] or head_2 != texts[1] or gap != gap_2:
        raise ModelError(
            "the chat template re-writes earlier messages when the conversation grows; choose a "
            "model whose template is append-only (an 'instruct' variant without thinking)"
        )
    if not gap.startswith(end_of_turn) or before_second_answer != before_answer:
        raise ModelError(
            f"the chat template does not end an answer with {end_of_turn!r}, the tokenizer's "
            "end-of-sequence token; set eos_token in the tokenizer's configuration"
        )
    return ChatPieces(
        before_system=before_system,
        before_first=before_first,
        before_answer=before_answer,
        after_answer=gap[len(end_of_turn) :],
        end_of_turn=end_of_turn,
    )


def read_chat_pieces(model_dir: Path) -> ChatPieces:
    """Cut the chat template of a model directory into appendable pieces.

    Raises:
        ModelError: the directory is no model directory, or its chat template is missing or not
            append-only.
    """
    from transformers import AutoTokenizer  # takes seconds, and env runners do not need it

    for name in ("config.json", "tokenizer.json"):
        if not (model_dir / name).is_file():
            raise ModelError(
                f"{model_dir} is not a model directory: {name} is missing; give the path of a "
                "Hugging Face model directory"
            )
    tokenizer = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    if not tokenizer.chat_template:
        raise ModelError(
            f"the tokenizer of {model_dir} has no chat template; choose an instruct model or add "
            "chat_template.jinja"
        )

    def render(messages: Sequence[tuple[str, str]]) -> str:
        return tokenizer.apply_chat_template(
            [{"role": role, "content": content} for role, content in messages],
            tokenize=False,
            add_generation_prompt=True,
        )

    return cut_chat_template(render, tokenizer.eos_token)


def tokenizer_digest(model_dir: Path) -> str:
    """Return a digest that identifies the tokenizer of a model directory.

    Raises:
        ModelError: it has no fast tokenizer.
    """
    return hashlib.sha256(_tokenizer_file(model_dir).read_bytes()).hexdigest()[:16]


def _tokenizer_file(model_dir: Path) -> Path:
    path = model_dir / "tokenizer.json"
    if not path.is_file():
        raise ModelError(f"{path} does not exist; a fast tokenizer is needed")
    return path


class ChatTokenizer:
    """Turns texts into token ids, piece by piece. Needs neither torch nor transformers."""

    def __init__(self, model_dir: Path, pieces: ChatPieces) -> None:
        """Load ``tokenizer.json`` of a model directory.

        Raises:
            ModelError: the file is missing, or the end of a turn is not a single token.
        """
        path = _tokenizer_file(model_dir)
        self._tokenizer = Tokenizer.from_file(str(path))
        self._pieces = pieces
        end_id = self._tokenizer.token_to_id(pieces.end_of_turn)
        if end_id is None:
            raise ModelError(f"{path} does not know the token {pieces.end_of_turn!r}")
        self.end_of_turn_id: int = end_id
        # Attempts of a group have the same opening and share states: encoding them again took 40%
        # of an env runner's CPU.
        self._encode = functools.lru_cache(maxsize=_MAX_CACHED_TEXTS)(self._encode_text)

    def opening(self, system: str, observation: str) -> tuple[int, ...]:
        """Return the ids of the prompt: system text, first user message, start of an answer."""
        pieces = self._pieces
        return self._encode(
            pieces.before_system + system + pieces.before_first + observation + pieces.before_answer
        )

    def observation(self, text: str) -> tuple[int, ...]:
        """Return the ids between an answer's end-of-turn token and the next answer."""
        return self._encode(self._pieces.after_answer + text + self._pieces.before_answer)

    def answer(self, text: str) -> list[int]:
        """Return the ids of a written answer with its end-of-turn token, for demonstrations."""
        return [*self._encode(text), self.end_of_turn_id]

    def text(self, token_ids: Sequence[int]) -> str:
        """Return the text of an answer without special tokens."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True)

    def _encode_text(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)


@dataclass(slots=True)
class Conversation:
    """The token ids of one episode, with mask, logprobs and weight versions; append-only."""

    token_ids: list[int]
    num_prompt_tokens: int
    loss_mask: list[int]
    rollout_logprobs: list[float]
    weight_versions: list[int]
    turn_starts: list[int]
    turn_ends: list[int]

    @classmethod
    def start(cls, prompt_ids: Sequence[int]) -> Conversation:
        """Start a conversation with the ids of its prompt."""
        size = len(prompt_ids)
        versions = [NOT_THE_POLICY] * size
        return cls(list(prompt_ids), size, [0] * size, [0.0] * size, versions, [], [])

    @property
    def num_response_tokens(self) -> int:
        """Everything after the prompt, observations included."""
        return len(self.token_ids) - self.num_prompt_tokens

    def append_answer(
        self,
        token_ids: Sequence[int],
        rollout_logprobs: Sequence[float],
        weight_versions: Sequence[int],
    ) -> None:
        """Append an answer with logprob and weight version of each token, as one turn."""
        self.turn_starts.append(len(self.token_ids))
        self.token_ids.extend(token_ids)
        self.loss_mask.extend([1] * len(token_ids))
        self.rollout_logprobs.extend(rollout_logprobs)
        self.weight_versions.extend(weight_versions)
        self.turn_ends.append(len(self.token_ids))

    def append_observation(self, token_ids: Sequence[int]) -> None:
        """Append an observation of the environment; it has no loss."""
        self.token_ids.extend(token_ids)
        self.loss_mask.extend([0] * len(token_ids))
        self.rollout_logprobs.extend([0.0] * len(token_ids))
        self.weight_versions.extend([NOT_THE_POLICY] * len(token_ids))
