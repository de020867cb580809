"""Journals of answers: every answer is on disk before it is used, so that none is paid for twice.

A file holds the answers of one episode in their order, one JSON object per line. A second start
replays the episode from its file and appends to it; what got no usable answer has no line and is
requested again. ``EvaluationDirectory`` locks out other processes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from cast_ray.errors import RunDirectoryError
from cast_ray.files import append_line, checked, fsync, parse_json, refusals_named
from cast_ray.rollout.chat_episode import ChatAnswer, ChatPlayer, Message

_log = logging.getLogger(__name__)


def request_digest(
    messages: Sequence[Message],
    *,
    max_tokens: int,
    seed: int,
    settings: Mapping[str, str | float],
) -> str:
    """Return 32 hexadecimal digits that identify a request by its conversation and limits.

    Args:
        messages, max_tokens, seed: as for ``ChatPlayer.answer``.
        settings: ``ChatPlayer.settings``.
    """
    content = {
        "messages": [[message.role, message.content] for message in messages],
        "max_tokens": max_tokens,
        "seed": seed,
        "settings": dict(settings),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


_Entry = tuple[str, ChatAnswer]
"""Digest of a request, and its answer."""


class AnswerJournal:
    """The answers of one episode."""

    def __init__(self, path: Path) -> None:
        """Open or create a journal.

        Raises:
            RunDirectoryError: a line before the last is damaged.
            EnvironmentSetupError: the file cannot be read or written.
        """
        self.path = path
        with refusals_named(path):
            if not path.exists():
                path.touch()
                fsync(path.parent)
            content = path.read_bytes()
        self._entries, end = self._read(content)
        self._next = 0
        if end < len(content):
            _log.warning("%s: dropped its last line, which is incomplete", path)
            with refusals_named(path):
                os.truncate(path, end)
                fsync(path)

    @property
    def num_unread(self) -> int:
        """Number of stored answers that were not taken yet."""
        return len(self._entries) - self._next

    def take(self, request: str) -> ChatAnswer | None:
        """Return the next stored answer; None if all were taken.

        Raises:
            RunDirectoryError: it is the answer to another request.
        """
        if not self.num_unread:
            return None
        stored, answer = self._entries[self._next]
        if stored != request:
            raise RunDirectoryError(
                f"{self.path} holds answers to another conversation (line {self._next + 1} does "
                "not match): use the settings that it was written with, or another directory"
            )
        self._next += 1
        return replace(answer, is_from_journal=True)

    def append(self, request: str, answer: ChatAnswer) -> None:
        """Write an answer; it is on disk when this returns.

        Raises:
            EnvironmentSetupError: it cannot be written.
        """
        assert not self.num_unread, "stored answers come first"
        line = {"request": request} | asdict(answer)
        del line["is_from_journal"]
        append_line(self.path, json.dumps(line))

    def check_finished(self) -> None:
        """Raise RunDirectoryError if there are answers after the episode's end."""
        if self.num_unread:
            raise RunDirectoryError(
                f"{self.path} holds {self.num_unread} answers after the episode's end: use the "
                "settings that it was written with, or another directory"
            )

    def _read(self, content: bytes) -> tuple[list[_Entry], int]:
        """Return the entries, and the end of the last complete line in bytes."""
        lines = content.splitlines(keepends=True)
        entries: list[_Entry] = []
        end = 0
        for number, line in enumerate(lines):
            try:
                entry = _entry_of(line)
                is_damaged = entry is None and number < len(lines) - 1
            except ValueError:
                entry, is_damaged = None, True
            if is_damaged:
                raise RunDirectoryError(
                    f"{self.path}: line {number + 1} is damaged; delete the file to play this "
                    "episode again"
                )
            if entry is not None:
                entries.append(entry)
                end += len(line)
        return entries, end


def _entry_of(line: bytes) -> _Entry | None:
    """Parse a line; None if it is incomplete.

    Raises:
        ValueError: it is complete, and not an entry.
    """
    if not line.endswith(b"\n"):
        return None
    try:
        content = parse_json(line)
    except ValueError:
        return None  # zeros, if the file grew before its content was written
    if not isinstance(content, dict) or content.pop("is_from_journal", None) is not None:
        raise ValueError("other fields")
    return checked(str, content.pop("request", None)), checked(ChatAnswer, content)


class JournaledPlayer:
    """A player that takes stored answers from a journal first, then writes new ones to it."""

    def __init__(self, player: ChatPlayer, journal: AnswerJournal) -> None:
        """Wrap a player for the journal's episode."""
        self._player = player
        self._journal = journal

    @property
    def settings(self) -> Mapping[str, str | float]:
        """See ``ChatPlayer``."""
        return self._player.settings

    async def answer(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int
    ) -> ChatAnswer:
        """See ``ChatPlayer``.

        Raises:
            RunDirectoryError: the journal is of another conversation.
            EnvironmentSetupError: the answer cannot be written.
        """
        request = request_digest(messages, max_tokens=max_tokens, seed=seed, settings=self.settings)
        stored = self._journal.take(request)
        if stored is not None:
            return stored
        given = await self._player.answer(messages, max_tokens=max_tokens, seed=seed)
        # Without a thread, although it waits for the disk: a cancellation cannot lose the answer.
        self._journal.append(request, given)
        return given
