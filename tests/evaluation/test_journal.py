"""Journals of answers: what was given is given again, to the same conversation and to no other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.errors import RunDirectoryError
from cast_ray.evaluation.endpoint.journal import AnswerJournal, JournaledPlayer, request_digest
from cast_ray.rollout.chat_episode import ChatAnswer, Message
from tests.support.rooms import FIXED

OPENING = (Message(role="system", content="rules"), Message(role="user", content="board"))
SETTINGS: Mapping[str, str | float] = {"model": "m", "temperature": 1.0, "top_p": 1.0}


def answer(text: str = "up", *, answer_tokens: int | None = 2) -> ChatAnswer:
    return ChatAnswer(
        text=text,
        finish_reason="stop",
        prompt_tokens=7,
        answer_tokens=answer_tokens,
        num_retries=1,
        seconds=0.5,
    )


class Talker:
    """Says what it was asked for how often, and how many lines the journal had by then."""

    def __init__(self, path: Path, settings: Mapping[str, str | float] = SETTINGS) -> None:
        self.settings = settings
        self.lines_before: list[int] = []
        self._path = path

    async def answer(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int
    ) -> ChatAnswer:
        self.lines_before.append(len(self._path.read_bytes().splitlines()))
        return answer(f"{len(messages)} {max_tokens} {seed}")


def talk(
    path: Path,
    turns: int,
    *,
    first: Sequence[Message] = OPENING,
    max_tokens: int = 100,
    seed: int = 3,
    settings: Mapping[str, str | float] = SETTINGS,
) -> tuple[list[ChatAnswer], Talker]:
    """Talk for some turns through a journal."""
    talker = Talker(path, settings)

    async def run() -> list[ChatAnswer]:
        messages = list(first)
        said: list[ChatAnswer] = []
        journal = AnswerJournal(path)
        player = JournaledPlayer(talker, journal)
        for turn in range(turns):
            latest = await player.answer(messages, max_tokens=max_tokens, seed=seed + turn)
            said.append(latest)
            messages += [
                Message(role="assistant", content=latest.text),
                Message(role="user", content="next"),
            ]
        return said

    return asyncio.run(run()), talker


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000-000.jsonl"


@pytest.mark.parametrize("stopped_after", [0, 1, 2, 5])
def test_second_start_asks_only_for_what_was_not_answered(path: Path, stopped_after: int) -> None:
    before, _ = talk(path, stopped_after)
    after, talker = talk(path, 5)
    assert [said.is_from_journal for said in after] == [turn < stopped_after for turn in range(5)]
    assert [replace(said, is_from_journal=False) for said in after[:stopped_after]] == before
    assert len(talker.lines_before) == 5 - stopped_after


def test_answer_is_on_disk_before_the_next_is_asked_for(path: Path) -> None:
    _, talker = talk(path, 4)
    assert talker.lines_before == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "changed",
    [
        {"first": (OPENING[0], Message(role="user", content="another board"))},
        {"max_tokens": 99},
        {"seed": 4},
        {"settings": {**SETTINGS, "model": "n"}},
        {"settings": {**SETTINGS, "temperature": 0.6}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_journal_of_another_conversation_is_refused_and_kept(path: Path, changed: dict) -> None:
    talk(path, 2)
    stored = path.read_bytes()
    with pytest.raises(RunDirectoryError, match=r"00000-000\.jsonl .*line 1\b"):
        talk(path, 2, **changed)
    assert path.read_bytes() == stored


def test_last_line_torn_anywhere_is_dropped_and_asked_for_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    talk(path, 3)
    whole = path.read_bytes()
    begin = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(begin + 1, len(whole)):  # every place: no single one is special
        path.write_bytes(whole[:cut])
        caplog.clear()
        _, talker = talk(path, 3)
        assert talker.lines_before == [2], cut
        assert path.read_bytes() == whole, cut
        assert path.name in caplog.text, cut


def test_whole_journal_loses_nothing_and_nothing_is_logged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    talk(path, 3)
    with caplog.at_level(logging.DEBUG, logger="cast_ray"):
        talk(path, 3)
    assert not [record for record in caplog.records if record.name.startswith("cast_ray")]


@pytest.mark.parametrize("tail", [b"\0" * 40, b"\0" * 40 + b"\n"])
def test_blocks_of_zeros_at_the_end_are_dropped(path: Path, tail: bytes) -> None:
    talk(path, 2)
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    talk(path, 2)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("line", [0, 1])
def test_damaged_line_before_the_last_is_refused_and_kept(path: Path, line: int) -> None:
    talk(path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line][:20] + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(RunDirectoryError, match=rf"line {line + 1}\b"):
        AnswerJournal(path)
    assert path.read_bytes() == b"".join(lines)


@pytest.mark.parametrize(
    "line",
    [
        b"{}\n",
        b"[1]\n",
        b'{"request": "a", "text": "t", "finish_reason": "stop", "prompt_tokens": true,'
        b' "answer_tokens": 1, "num_retries": 0, "seconds": 1.0}\n',
        b'{"request": "a", "text": "t", "finish_reason": "eos", "prompt_tokens": 1,'
        b' "answer_tokens": 1, "num_retries": 0, "seconds": 1.0}\n',
    ],
)
def test_file_of_something_else_is_refused_and_kept(path: Path, line: bytes) -> None:
    path.write_bytes(line)
    with pytest.raises(RunDirectoryError, match=r"line 1\b"):
        AnswerJournal(path)
    assert path.read_bytes() == line


def test_answers_behind_the_end_of_an_episode_are_refused(path: Path) -> None:
    talk(path, 2)
    journal = AnswerJournal(path)
    with pytest.raises(RunDirectoryError, match=r"\b2 answers"):
        journal.check_finished()
    for turn in range(2):
        messages = [*OPENING, *turn * (Message(role="assistant", content="2 100 3"),)]
        messages += turn * [Message(role="user", content="next")]
        request = request_digest(messages, max_tokens=100, seed=3 + turn, settings=SETTINGS)
        assert journal.take(request) is not None
    journal.check_finished()


@FIXED
@given(st.text(), st.none() | st.integers(0, 2**31))
def test_any_text_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, text: str, answer_tokens: int | None
) -> None:
    given_answer = answer(text, answer_tokens=answer_tokens)
    place = tmp_path_factory.mktemp("journal") / "a.jsonl"
    journal = AnswerJournal(place)
    journal.append("request", given_answer)
    journal = AnswerJournal(place)
    assert journal.take("request") == replace(given_answer, is_from_journal=True)


TALKS = st.lists(
    st.builds(
        Message, role=st.sampled_from(["system", "user"]), content=st.text('ab,[]"', max_size=3)
    ),
    max_size=3,
)


@FIXED
@given(TALKS, TALKS)
def test_conversations_share_a_digest_only_if_they_are_equal(
    one: list[Message], other: list[Message]
) -> None:
    digests = {
        request_digest(messages, max_tokens=1, seed=1, settings=SETTINGS)
        for messages in (one, other)
    }
    assert len(digests) == (1 if one == other else 2)
