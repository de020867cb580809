"""The page about the theorem: what it says, and that it asks nobody for anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cast_ray.cli.main import app
from cast_ray.runs.report.theory import Claim
from cast_ray.runs.report.wording import tiny
from tests.support.page import Element, parse_page


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("theory") / "new" / "theory.html"
    result = CliRunner().invoke(app, ["theory", "--out", str(path)])
    assert (result.exit_code, result.output) == (0, f"{path}\n")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html: str) -> Element:
    return parse_page(html)


def test_page_says_of_every_exact_claim_that_it_holds(page: Element) -> None:
    rows = page.one("claims").all("tr")[1:]
    assert len(rows) == 10
    assert all(row.text.endswith("holds") for row in rows)
    assert {"eq:implicit_obj", "eq:app_beta_eff", "eq:app_pdl", "eq:app_optimal_policy"} <= {
        row.one("label").text for row in rows
    }


def test_page_draws_what_is_only_approximate(page: Element) -> None:
    figures = page.all("figure")
    assert len(figures) == 10
    assert all(figure.all("line") for figure in figures)
    titles = " / ".join(figure.one("h3").text for figure in figures)
    for subject in ("1/√2: the limit", "1/√2: real costs", "Visits not frozen", "σ in the outcome"):
        assert subject in titles


def test_page_gives_the_measured_slopes(page: Element) -> None:
    limit = page.all("figcaption")[0].text
    assert "like s2.01," in limit
    assert "like s1.00." in limit


def test_page_asks_no_host_and_runs_nothing(html: str) -> None:
    assert "://" not in html
    assert "<script" not in html
    assert "default-src 'none'" in html


def test_indices_are_lowered(page: Element) -> None:
    assert "π_" not in page.one("main").text
    assert "S" in [index.text for index in page.all("sub")]


def test_claim_beyond_the_tolerance_does_not_hold() -> None:
    assert Claim(statement="", label="", difference=9e-7).holds
    assert not Claim(statement="", label="", difference=2e-6).holds


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (2.3e-16, "2e−16")])
def test_tiny_numbers_show_their_order_of_magnitude(value: float, text: str) -> None:
    assert tiny(value) == text
