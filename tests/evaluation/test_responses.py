"""What endpoints say, where they are and what they cost, without any."""

from __future__ import annotations

import pytest

from cast_ray.errors import ConfigError
from cast_ray.evaluation.endpoint.config import Endpoint, Prices
from cast_ray.evaluation.endpoint.responses import RetryableError, asked_wait, read_answer
from tests.support.scripted_endpoint import KEY, MODEL, UNREADABLE


@pytest.mark.parametrize("name", UNREADABLE)
def test_body_that_holds_no_answer_may_be_retried(name: str) -> None:
    with pytest.raises(RetryableError):
        read_answer(UNREADABLE[name])


@pytest.mark.parametrize(
    "usage",
    [
        "null",
        "7",
        "{}",
        '{"prompt_tokens": "9"}',
        '{"prompt_tokens": -1}',
        '{"prompt_tokens": true}',
    ],
)
def test_count_that_is_none_is_unknown_and_the_answer_is_kept(usage: str) -> None:
    said = read_answer(
        b'{"choices": [{"finish_reason": "stop", "message": {"content": "a"}}], "usage": %s}'
        % usage.encode()
    )
    assert (said.text, said.prompt_tokens, said.answer_tokens) == ("a", None, None)


@pytest.mark.parametrize(
    ("url", "key", "facts"),
    [
        ("http://h/v1", "", rf"openai:{MODEL}.*OPENAI_API_KEY"),
        ("http://h/v1", "  \n", rf"openai:{MODEL}.*OPENAI_API_KEY"),
        ("http://h/v1", "sk-schl\u00fcssel", "OPENAI_API_KEY.*character"),
        ("http://h/v1", "sk-a\nb", "OPENAI_API_KEY.*character"),
        ("ftp://h/v1", KEY, "OPENAI_BASE_URL.*http://.*https://"),
        ("h/v1", KEY, "OPENAI_BASE_URL.*http://.*https://"),
        ("http:///v1", KEY, "OPENAI_BASE_URL.*http://.*https://"),
        ("http://a b/v1", KEY, "OPENAI_BASE_URL.*address"),
        ("http://h:x/v1", KEY, "OPENAI_BASE_URL.*address"),
        ("http://[::1/v1", KEY, "OPENAI_BASE_URL.*address"),
        ("https://user:secret@h/v1", KEY, "OPENAI_BASE_URL.*password.*OPENAI_API_KEY"),
    ],
)
def test_address_or_key_that_cannot_be_used_is_refused(url: str, key: str, facts: str) -> None:
    with pytest.raises(ConfigError, match=facts) as raised:
        Endpoint.from_environment(MODEL, {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key})
    assert not key.strip() or key not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_key_from_a_file_may_end_with_its_newline() -> None:
    environ = {"OPENAI_BASE_URL": "http://h/v1", "OPENAI_API_KEY": f"{KEY}\n"}
    assert Endpoint.from_environment(MODEL, environ).api_key == KEY


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
    ],
)
def test_wait_is_read_in_all_its_forms(headers: dict[str, str], wait_s: float | None) -> None:
    assert asked_wait(headers, now=10.0) == wait_s


def test_price_is_that_of_both_kinds_of_tokens() -> None:
    prices = Prices(price_per_million_prompt=3.0, price_per_million_answer=15.0)
    price = prices.price_usd(prompt_tokens=2_000_000, answer_tokens=100_000)
    assert price == pytest.approx(6.0 + 1.5)


@pytest.mark.parametrize(
    ("prices", "prompt", "answer"),
    [
        (Prices(), 1, 1),
        (Prices(price_per_million_prompt=1.0), 1, 1),
        (Prices(price_per_million_prompt=1.0, price_per_million_answer=1.0), None, 1),
        (Prices(price_per_million_prompt=1.0, price_per_million_answer=1.0), 1, None),
    ],
)
def test_price_of_what_is_unknown_is_unknown(
    prices: Prices, prompt: int | None, answer: int | None
) -> None:
    assert prices.price_usd(prompt_tokens=prompt, answer_tokens=answer) is None


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_price_that_is_none_is_refused(price: float) -> None:
    with pytest.raises(ConfigError, match="price_per_million_answer"):
        Prices(price_per_million_answer=price)
