"""What endpoints say, where they are and what they cost, without any."""

from __future__ import annotations

import pytest

from cast_ray.errors import ConfigError
from cast_ray.evaluation.endpoint.config import Endpoint, Prices, parse_extra_body
from cast_ray.evaluation.endpoint.responses import (
    UnusableError,
    asked_wait,
    read_answer,
    read_json,
    reported_error,
)
from cast_ray.rollout.chat_episode import ChatAnswer
from tests.support.scripted_endpoint import KEY, MODEL, ODD, REPORTS, UNREADABLE

ENDPOINT = Endpoint(model=MODEL, base_url="http://h/v1", api_key=KEY)


def read(body: bytes) -> ChatAnswer:
    content = read_json(body, ENDPOINT)
    assert reported_error(content) is None
    return read_answer(content, ENDPOINT, max_tokens=100)


@pytest.mark.parametrize("name", UNREADABLE)
def test_body_that_holds_no_answer_is_unusable(name: str) -> None:
    with pytest.raises(UnusableError):
        read(UNREADABLE[name])


@pytest.mark.parametrize("name", ODD)
def test_answer_in_an_odd_form_is_an_answer(name: str) -> None:
    odd = ODD[name]
    said = read(odd.body)
    assert (said.text, said.finish_reason) == (odd.text, odd.finish_reason)


@pytest.mark.parametrize("form", REPORTS)
def test_error_of_a_body_has_its_status_and_its_sentence(form: str) -> None:
    status, error = reported_error(REPORTS[form](429)) or (None, {})
    assert status == 429 and "so it is" in error.values()


@pytest.mark.parametrize("code", [200, 99, 600, True, None, "rate_limit", [429]])
def test_code_that_is_no_status_is_none(code: object) -> None:
    assert reported_error({"error": {"code": code, "message": "m"}}) is None


@pytest.mark.parametrize(
    "body",
    [
        f"<html>\n{KEY} {'x' * 400}</html>".encode(),
        f'{{"error": "{KEY}\ud800 {"x" * 400}"}}'.encode(errors="surrogatepass"),
        f'{{"error": "{KEY}\\ud800 {"x" * 400}"}}'.encode(),
    ],
)
def test_reason_is_one_short_line_of_text_without_the_key(body: bytes) -> None:
    with pytest.raises(UnusableError) as raised:
        read(body)
    reason = str(raised.value)
    assert "*** " in reason or "***?" in reason or "***\\ud800" in reason
    assert KEY not in reason and "\n" not in reason and len(reason) < 400
    reason.encode()


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
    said = read(
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


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("{", "JSON object"),
        ("[]", "JSON object"),
        ("null", "JSON object"),
        ('"top_k"', "JSON object"),
        ('{"top_k": NaN}', "JSON object"),
        ('{"word": "\\ud800"}', "JSON object"),
        ("[" * 100_000, "JSON object"),
        ('{"model": "m"}', "model"),
        ('{"messages": []}', "messages"),
        ('{"stream": true}', "stream"),
        ('{"n": 2}', r"\bn\b"),
        ('{"max_tokens": 9}', "max_tokens"),
        ('{"max_completion_tokens": 9}', "max_completion_tokens"),
        ('{"seed": 1}', "seed"),
        ('{"top_k": 1, "temperature": 0}', "temperature"),
        ('{"top_p": 0.5}', "top_p"),
    ],
)
def test_extra_body_that_cannot_be_merged_is_refused(text: str, fact: str) -> None:
    with pytest.raises(ConfigError, match=f"--extra-body .*{fact}"):
        parse_extra_body(text)


def test_extra_body_is_any_other_object() -> None:
    text = '{"top_k": 20, "chat_template_kwargs": {"enable_thinking": false}}'
    assert parse_extra_body(text) == {
        "top_k": 20,
        "chat_template_kwargs": {"enable_thinking": False},
    }


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_price_that_is_none_is_refused(price: float) -> None:
    with pytest.raises(ConfigError, match="price_per_million_answer"):
        Prices(price_per_million_answer=price)
