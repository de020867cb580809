"""Conversations as append-only token ids.

A policy's tokens are kept as the engine returned them, and never re-tokenised. The text between two
answers is encoded together with the token that ends the first, which may swallow blanks after it;
this is exact because tokenizers split at special tokens anyway.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from cast_ray.errors import ModelError
from cast_ray.rollout.chat_template import ChatPieces
from cast_ray.rollout.trajectory import NOT_THE_POLICY

_MAX_CACHED_TEXTS = 4096


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
            ModelError: the file is missing or broken, or the end of a turn is not a single token.
        """
        path = _tokenizer_file(model_dir)
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more specific
            raise ModelError(f"{path} cannot be read ({error}): restore it") from None
        # Stored by some models; a prompt would be cut, or filled up, without a word.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._pieces = pieces
        end_id = self._tokenizer.token_to_id(pieces.end_of_turn)
        if end_id is None or self._encode_text(pieces.end_of_turn) != (end_id,):
            raise ModelError(f"{path} does not know the token {pieces.end_of_turn!r}")
        self.end_ids = tuple(dict.fromkeys((end_id, *pieces.other_end_ids)))
        """Of the tokens that end an answer; the first one is the template's."""
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
        pieces = self._pieces
        after_end = pieces.end_of_turn + pieces.after_answer + text + pieces.before_answer
        return self._encode(after_end)[1:]

    def answer(self, text: str) -> list[int]:
        """Return the ids of a written answer with its end-of-turn token, for demonstrations."""
        return [*self._encode(text), self.end_ids[0]]

    def text(self, token_ids: Sequence[int]) -> str:
        """Return the text of an answer without special tokens, and without its end in any case."""
        is_ended = bool(token_ids) and token_ids[-1] in self.end_ids
        ids = list(token_ids[:-1] if is_ended else token_ids)
        return self._tokenizer.decode(ids, skip_special_tokens=True)

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
