"""Requests made up from the service's own OpenAPI schema, right and wrong: never a 5xx."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from solver_actors.oracle import Oracle
from tests.support.browsed_run import write_run
from tests.support.scripted import build_test_policy, in_turn
from tests.support.site import FREE, served, site_app

NOT_HTTP = "Invalid HTTP request received."
EXAMPLES = 25
"""Of each operation."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("fuzzed")
    tokenizer = build_test_policy(folder / "policy")
    write_run(folder / "runs" / "first", Oracle(max_bytes=2**24))
    app = site_app(
        replace(FREE, runs=folder / "runs"), tokenizer=tokenizer, answer=in_turn("```Up```")
    )
    with served(app) as found:
        yield found


def fuzz(operation: schemathesis.schemas.APIOperation, mode: GenerationMode) -> set[int]:
    """Return the statuses that an operation answered with."""
    seen: set[int] = set()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        answer = case.call(timeout=60)
        seen.add(answer.status_code)
        assert answer.status_code < 500, answer.text
        if answer.status_code == 400 and answer.text == NOT_HTTP:
            return  # the server's own word, which no application sees
        if answer.status_code >= 400:
            error = answer.json()["error"]
            assert error["code"]
            assert error["message"]

    try:
        ask()
    except Unsatisfiable:  # an operation without parameters cannot be asked wrongly
        assert mode is GenerationMode.NEGATIVE
    return seen


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_breaks_the_service(address: str, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    statuses = {operation.label: fuzz(operation, mode) for operation in operations}
    wanted = {200, 201} if mode is GenerationMode.POSITIVE else {422}
    assert wanted <= set().union(*statuses.values()), statuses
    assert len(statuses) >= 15, list(statuses)
