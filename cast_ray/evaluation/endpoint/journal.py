"""Answers on disk before they are used, so that an answer that was paid for is not asked for twice.

One file holds one episode's answers, a line of JSON each, in the order in which they were given. A
second start plays the episode from there and goes on behind it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType

from cast_ray.errors import RunDirectoryError
from cast_ray.files import fsync, refusals_named
from cast_ray.rollout.chat_episode import FINISH_REASONS, ChatAnswer, ChatPlayer, Message

_log = logging.getLogger(__name__)
_COLUMNS: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "finish_reason": (str,),
    "prompt_tokens": (int, type(None)),
    "answer_tokens": (int, type(None)),
    "num_retries": (int,),
    "seconds": (int, float),
}
"""What a line holds of an answer, beside its request; no bool passes for a number."""


def request_digest(
    messages: Sequence[Message],
    *,
    max_tokens: int,
    seed: int,
    settings: Mapping[str, str | float],
) -> str:
    """Return 32 hexadecimal digits that name a request: equal for equal conversations and limits.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    request: str
    answer: ChatAnswer


class AnswerJournal:
    """The answers of one episode; a context manager that holds its file for this process alone."""

    def __init__(self, path: Path) -> None:
        """Open or make a journal.

        Raises:
            RunDirectoryError: another process has it open, or a line before the last is damaged.
            EnvironmentSetupError: the file system refused something.
        """
        self.path = path
        is_new = not path.exists()
        with refusals_named(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            with refusals_named(path):
                self._lock()
                if is_new:
                    fsync(path.parent)
                entries, end = self._read()
                if end < os.fstat(self._file).st_size:
                    _log.warning("%s: dropped its last line, which is not whole", path)
                    os.ftruncate(self._file, end)
                    os.fsync(self._file)
        except BaseException:
            os.close(self._file)
            raise
        self._entries = entries
        self._next = 0

    @property
    def num_unread(self) -> int:
        """Answers of earlier starts that were not taken yet."""
        return len(self._entries) - self._next

    def take(self, request: str) -> ChatAnswer | None:
        """Return the next stored answer; None where all were taken.

        Raises:
            RunDirectoryError: it answers another request.
        """
        if not self.num_unread:
            return None
        entry = self._entries[self._next]
        if entry.request != request:
            raise RunDirectoryError(
                f"{self.path} holds answers to another conversation (its line {self._next + 1} "
                "does not fit): use the settings that it was written under, or another directory"
            )
        self._next += 1
        return replace(entry.answer, is_from_journal=True)

    def append(self, request: str, answer: ChatAnswer) -> None:
        """Put an answer on disk; it is there when this returns.

        Raises:
            EnvironmentSetupError: the file system refused it.
        """
        assert not self.num_unread, "stored answers come first"
        line = {"request": request} | asdict(answer)
        del line["is_from_journal"]
        data = (json.dumps(line) + "\n").encode()
        with refusals_named(self.path):
            # In one call: what a kill can leave behind is the whole line or none of it.
            if os.write(self._file, data) < len(data):
                raise OSError("it was cut off")
            os.fsync(self._file)

    def check_finished(self) -> None:
        """Raise RunDirectoryError if there are answers behind the episode's end."""
        if self.num_unread:
            raise RunDirectoryError(
                f"{self.path} holds {self.num_unread} answers behind the episode's end: use the "
                "settings that it was written under, or another directory"
            )

    def close(self) -> None:
        """Let others have the file."""
        os.close(self._file)

    def __enter__(self) -> AnswerJournal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            # Ends with the process, however it ends.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunDirectoryError(
                f"{self.path} is being written by another process: wait for it, or end it"
            ) from None

    def _read(self) -> tuple[list[_Entry], int]:
        """Return the entries and where the last whole line ends, in bytes."""
        with open(self._file, "rb", closefd=False) as file:
            lines = file.read().splitlines(keepends=True)
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
                    "episode anew"
                )
            if entry is not None:
                entries.append(entry)
                end += len(line)
        return entries, end


def _entry_of(line: bytes) -> _Entry | None:
    """Return what a line holds; None where the line is not whole.

    Raises:
        ValueError: it is whole, and holds something else.
    """
    if not line.endswith(b"\n"):
        return None
    try:
        content = json.loads(line)
    except ValueError:
        return None  # blocks of zeros, where the file grew before its content was written
    if not isinstance(content, dict) or set(content) != {"request", *_COLUMNS}:
        raise ValueError("other fields")
    request = content.pop("request")
    is_typed = all(type(content[name]) in kinds for name, kinds in _COLUMNS.items())
    if not (is_typed and isinstance(request, str) and content["finish_reason"] in FINISH_REASONS):
        raise ValueError("other values")
    return _Entry(request=request, answer=ChatAnswer(**content))


class JournaledPlayer:
    """A player whose answers go through a journal: stored ones first, then new ones."""

    def __init__(self, player: ChatPlayer, journal: AnswerJournal) -> None:
        """Set up a player for the journal's episode."""
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
            RunDirectoryError: the journal is that of another conversation.
            EnvironmentSetupError: the answer cannot be written down.
        """
        request = request_digest(messages, max_tokens=max_tokens, seed=seed, settings=self.settings)
        stored = self._journal.take(request)
        if stored is not None:
            return stored
        given = await self._player.answer(messages, max_tokens=max_tokens, seed=seed)
        # On this thread, although it waits for the disk: nothing can be cancelled in between.
        self._journal.append(request, given)
        return given
