"""The fence rule: pairs from the left, the last pair counts."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.games.text import last_fenced_block
from tests.support.rooms import FIXED


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        ("```Up```", "Up"),
        ("I think.\n```\n Up \n```\nDone.", "Up"),
        ("```Up``` no, ```Down```", "Down"),
        ("```Up``` and then ```Down", "Up"),  # the odd fence is ignored
        ("```Up``````Down```", "Down"),
        ("```action\nUp```", "Up"),
        ("```TEXT Up```", "Up"),
        ("```Python\n\nreveal 3 2\n```", "reveal 3 2"),
        ("```bash\nUp\n```", "Up"),
        ("```action text Up```", "text Up"),  # one tag only
        ("```action```", "action"),  # nothing would remain
        ("```textUp```", "textUp"),  # the tag is a word of its own
        ("```json\nUp```", "json\nUp"),
        ("````Up````", "`Up"),
    ],
)
def test_content_of_the_last_pair(answer: str, content: str) -> None:
    assert last_fenced_block(answer) == content


@pytest.mark.parametrize(
    "answer", ["", "Up", "```", "```Up", "``Up``", "``````", "```Up``` ``` \n```", "```Up``````"]
)
def test_no_pair_or_an_empty_last_pair_is_nothing(answer: str) -> None:
    expected = "Up" if answer == "```Up``````" else None  # three fences are one pair
    assert last_fenced_block(answer) == expected


@FIXED
@given(st.text(st.sampled_from("` \n\0Uptextaction\ud800é")) | st.text(st.characters()))
def test_any_text_gives_stripped_content_or_nothing(answer: str) -> None:
    content = last_fenced_block(answer)
    assert content is None or (content == content.strip() != "" and content in answer)


@FIXED
@given(st.text(), st.text(st.characters(exclude_characters="`")))
def test_text_without_fences_at_the_end_changes_nothing(answer: str, tail: str) -> None:
    assert last_fenced_block(answer + "\n" + tail) == last_fenced_block(answer + "\n")


def test_a_million_fences_take_less_than_seconds() -> None:
    started = time.perf_counter()
    assert last_fenced_block("```Up``` " * 500_000) == "Up"
    assert time.perf_counter() - started < 2.0
