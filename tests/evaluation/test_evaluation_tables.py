# ruff: noqa: E501  (tables as they are)
import json

import pytest

from cast_ray.errors import ConfigError
from cast_ray.evaluation.attempts import Attempt
from cast_ray.evaluation.table_sections import column_title, markdown_table, percents
from cast_ray.evaluation.tables import markdown_tables, results_document, transfer_table
from cast_ray.games.game import Effect
from cast_ray.statistics import Success, success_rate
from tests.support.made_attempts import attempts_at, made_attempt

SOKOBAN, MINES = "sokoban:mini", "minesweeper:mini"
MOVE = Effect.CHANGED


def small_evaluation() -> list[Attempt]:
    """Two models, two games, two puzzles of each, two attempts."""
    solved = made_attempt(model="ours", tier="mini", costs=(2.0, 1.0, 0.0), is_success=True)
    detour = made_attempt(
        model="ours", tier="mini", puzzle_id="p1", effects=(MOVE,) * 4,
        costs=(2.0, 3.0, 2.0, 1.0, 0.0), is_success=True, attempt=1,
    )  # fmt: skip
    dead = made_attempt(
        model="base", tier="mini", effects=(MOVE, MOVE), costs=(2.0, 1.0, float("inf")),
        end_reason="deadlock", price_usd=0.5, num_retries=1,
    )  # fmt: skip
    lost = made_attempt(model="base", tier="mini", puzzle_id="p1", effects=(Effect.INVALID,) * 3)
    mines = [
        made_attempt(
            model=model, game="minesweeper", tier="mini", puzzle_id=puzzle_id, attempt=number,
            excess_risks=(0.0, risk), safe_reveals=(True, risk == 0), is_success=risk == 0,
            end_reason="lost" if risk else "solved", prompt_tokens=None,
        )
        for model, risk in (("ours", 0.0), ("base", 0.5))
        for puzzle_id in ("p0", "p1")
        for number in range(2)
    ]  # fmt: skip
    return [solved, solved, detour, detour, dead, dead, lost, lost, *mines]


def sections(text: str) -> list[list[list[str]]]:
    """Return the cells of each table, without its heading, header and rule."""
    tables = [section.split("\n\n")[1].split("\n")[2:] for section in text.split("### ")[1:]]
    return [[[cell.strip() for cell in row.split("|")[1:-1]] for row in rows] for rows in tables]


def test_tables_of_a_small_evaluation_are_these() -> None:
    document = results_document(
        small_evaluation(), labels=["ours", "base"], games=[SOKOBAN, MINES], seed=0
    )
    text = markdown_tables(document)
    assert "Avg@2" in text and "Sokoban Mini: 2" in text and "pass@2" in text
    success, moves, reveals, effort, failures, passed, pairs = sections(text)
    assert success == [
        ["ours", "**100.0** [100.0, 100.0]", "**100.0** [100.0, 100.0]"],
        ["base", "0.0 [0.0, 0.0]", "0.0 [0.0, 0.0]"],
    ]
    assert moves == [
        ["ours", "Sokoban Mini", "0.33", "83.3", "0.0", "—", "1.0"],
        ["base", "Sokoban Mini", "0.00", "50.0", "100.0", "2.0", "—"],
    ]
    assert reveals == [
        ["ours", "Minesweeper Mini", "0.0", "100.0"],
        ["base", "Minesweeper Mini", "25.0", "50.0"],
    ]
    assert effort == [
        ["ours", "Sokoban Mini", "3.0", "30", "10", "100", "1.0", "0", "—"],
        ["ours", "Minesweeper Mini", "2.0", "20", "10", "—", "1.0", "0", "—"],
        ["base", "Sokoban Mini", "2.5", "25", "10", "100", "1.0", "2", "—"],
        ["base", "Minesweeper Mini", "2.0", "20", "10", "—", "1.0", "0", "—"],
    ]
    assert failures == [
        ["ours", "Sokoban Mini", "4", "0", "0", "0", "0"],
        ["ours", "Minesweeper Mini", "4", "0", "0", "0", "0"],
        ["base", "Sokoban Mini", "4", "4", "2", "0", "2"],
        ["base", "Minesweeper Mini", "4", "4", "0", "4", "0"],
    ]
    assert passed == [
        [model, game, share, share]
        for model, share in (("ours", "100.0"), ("base", "0.0"))
        for game in ("Sokoban Mini", "Minesweeper Mini")
    ]
    assert pairs == [
        ["ours", "base", game, "+100.0 [100.0, 100.0]", "0.500", "1.000", "2", "0", "0", "0"]
        for game in ("Sokoban Mini", "Minesweeper Mini")
    ]


def test_document_has_the_first_model_s_results_and_gives_the_same_tables_from_a_file() -> None:
    attempts = small_evaluation()
    document = results_document(attempts, labels=["base", "ours"], games=[SOKOBAN, MINES], seed=4)
    assert (document["model"], document["attempts"]) == ("base", 2)
    base = [one for one in attempts if (one.model, one.game) == ("base", "sokoban")]
    counted = success_rate([one.puzzle_id for one in base], [0.0] * 4, seed=4)
    assert document["results"][SOKOBAN] == {
        "success": counted.success, "low": counted.low, "high": counted.high, "n": counted.n,
    }  # fmt: skip
    assert list(document["models"]) == ["base", "ours"]
    stored = json.loads(json.dumps(document, allow_nan=False))
    assert stored == document
    assert markdown_tables(stored) == markdown_tables(document)


PAPER_TIERS = [
    f"{game}:{tier}"
    for tier in ("id", "unseen")
    for game in ("sokoban", "minesweeper", "rush_hour")
]


def evaluated(marks: str, games: list[str], *, model: str, run: int = 0) -> list[Attempt]:
    """Return an attempt at each of the puzzles of each game; every game loses one mark more."""
    found: list[Attempt] = []
    for place, which in enumerate(games):
        game, _, tier = which.partition(":")
        turned = marks[place:] + "0" * place
        outcomes = {f"p{number}": mark for number, mark in enumerate(turned)}
        found += attempts_at(outcomes, model=model, run=run, game=game, tier=tier)
    return found


def first_table(attempts: list[Attempt], *, labels: list[str], games: list[str]) -> str:
    document = results_document(attempts, labels=labels, games=games, seed=0)
    return markdown_tables(document).split("\n\n")[1]


def test_main_table_has_the_layout_of_the_paper() -> None:
    attempts = evaluated("1111111000", PAPER_TIERS, model="CAST")
    attempts += evaluated("1111111100", PAPER_TIERS, model="DAPO")
    table = first_table(attempts, labels=["CAST", "DAPO"], games=PAPER_TIERS)
    header, _, cast, _ = (
        [cell.strip() for cell in row.split("|")[1:-1]] for row in table.split("\n")
    )
    assert header == [
        "model", "Sokoban ID", "Sokoban Unseen", "Minesweeper ID", "Minesweeper Unseen",
        "Rush Hour ID", "Rush Hour Unseen", "Average ID", "Average Unseen",
    ]  # fmt: skip
    shares = [cell.split(" ")[0] for cell in cast[1:]]
    assert shares == ["70.0", "40.0", "60.0", "30.0", "50.0", "20.0", "60.0", "30.0"]


def test_best_of_a_column_is_bold() -> None:
    attempts = evaluated("1000", [SOKOBAN], model="a") + evaluated("1100", [SOKOBAN], model="b")
    table = first_table(attempts, labels=["a", "b"], games=[SOKOBAN])
    assert "**50.0** [" in table
    assert "**25.0**" not in table


def test_average_stands_only_where_all_games_of_the_paper_do() -> None:
    games = [name for name in PAPER_TIERS if name != "rush_hour:unseen"]
    table = first_table(evaluated("1110", games, model="a"), labels=["a"], games=games)
    assert "Average ID" in table
    assert "Average Unseen" not in table


def test_runs_are_averaged_and_counted_in_the_row() -> None:
    attempts = evaluated("1100", [SOKOBAN], model="CAST") + evaluated(
        "1111", [SOKOBAN], model="CAST", run=1
    )
    table = first_table(attempts, labels=["CAST"], games=[SOKOBAN])
    assert "CAST (mean of 2 runs)" in table
    assert "75.0 [" in table


def test_single_model_has_no_comparisons() -> None:
    attempts = evaluated("1100", [SOKOBAN], model="a")
    document = results_document(attempts, labels=["a"], games=[SOKOBAN], seed=0)
    assert document["comparisons"] == []
    text = markdown_tables(document)
    assert "Paired" not in text
    assert "pass@" not in text  # one attempt: it would be Avg@1 again


def test_comparisons_are_corrected_over_all_pairs_and_games() -> None:
    marks = {"a": "1111111111", "b": "0000000000", "c": "1111100000"}
    attempts = [
        attempt
        for model, marked in marks.items()
        for attempt in evaluated(marked, [SOKOBAN], model=model)
    ]
    comparisons = results_document(attempts, labels=list(marks), games=[SOKOBAN], seed=0)[
        "comparisons"
    ]
    assert [(one["a"], one["b"]) for one in comparisons] == [("a", "b"), ("a", "c"), ("b", "c")]
    # Ten of ten: 2 of 2^10 patterns. Five of five: 2 of 2^5.
    assert [one["p_value"] for one in comparisons] == pytest.approx([2 / 1024, 2 / 32, 2 / 32])
    assert [one["p_holm"] for one in comparisons] == pytest.approx([6 / 1024, 4 / 32, 4 / 32])


def test_model_that_did_not_play_a_game_is_named() -> None:
    attempts = evaluated("11", [SOKOBAN], model="a")
    with pytest.raises(ConfigError, match="'a' at minesweeper:mini"):
        results_document(attempts, labels=["a"], games=[SOKOBAN, MINES], seed=0)


def test_many_attempts_show_few_columns_of_pass_at_k() -> None:
    attempts = attempts_at({"p": "1" + "0" * 19}, tier="mini")
    document = results_document(attempts, labels=["model"], games=[SOKOBAN], seed=0)
    header = next(row for row in markdown_tables(document).split("\n") if "pass@1 " in row)
    found = [cell.strip() for cell in header.split("|")[3:-1]]
    assert found == [f"pass@{k}" for k in (1, 2, 3, 4, 5, 6, 7, 8, 16, 20)]


# Markdown


def test_label_neither_ends_its_cell_nor_becomes_html() -> None:
    table = markdown_table(["model", "n"], [["a|b\n<script>x</script>", "< 1"]])
    assert table.split("\n")[2] == "| a\\|b &lt;script>x&lt;/script> | < 1 |"


def test_columns_of_text_are_aligned_left_and_numbers_right() -> None:
    table = markdown_table(["model", "share"], [["a", "1"], ["base", "0.50"]])
    assert table.split("\n") == [
        "| model | share |",
        "| ----- | ----: |",
        "| a     |     1 |",
        "| base  |  0.50 |",
    ]


def test_values_that_look_the_same_are_both_best() -> None:
    assert percents([0.5, 0.50001, 0.4, None]) == ["**50.0**", "**50.0**", "40.0", "—"]


def test_nothing_is_best_alone() -> None:
    assert percents([0.5, None]) == ["50.0", "—"]


# Transfer


def on_both(alfworld: float, webshop: float) -> dict[str, Success]:
    return {
        name: Success(success=value / 100, low=0.0, high=1.0, n=560)
        for name, value in (("alfworld", alfworld), ("webshop", webshop))
    }


PAPER = {
    ("ReAct", None): on_both(30.2, 18.8),
    ("GiGPO", "sokoban"): on_both(35.6, 17.2),
    ("GiGPO", "minesweeper"): on_both(24.9, 20.2),
    ("GiGPO", "rush_hour"): on_both(32.1, 16.4),
    ("CAST", "sokoban"): on_both(38.4, 23.2),
    ("CAST", "minesweeper"): on_both(33.9, 25.1),
    ("CAST", "rush_hour"): on_both(41.4, 19.7),
}
TRANSFER = """\
| Method | ALFWorld: Sok. | ALFWorld: Mine. | ALFWorld: Rush | ALFWorld: Average | WebShop: Sok. | WebShop: Mine. | WebShop: Rush | WebShop: Average |  Overall |
| ------ | -------------: | --------------: | -------------: | ----------------: | ------------: | -------------: | ------------: | ---------------: | -------: |
| ReAct  |              — |               — |              — |              30.2 |             — |              — |             — |             18.8 |     24.5 |
| GiGPO  |           35.6 |            24.9 |           32.1 |              30.9 |          17.2 |           20.2 |          16.4 |             17.9 |     24.4 |
| CAST   |       **38.4** |        **33.9** |       **41.4** |          **37.9** |      **23.2** |       **25.1** |      **19.7** |         **22.7** | **30.3** |"""


def test_transfer_table_has_the_numbers_of_the_paper() -> None:
    assert transfer_table(PAPER) == TRANSFER


def test_average_of_fewer_agents_is_marked_and_never_best() -> None:
    found = {("A", "sokoban"): on_both(90, 80), ("B", None): on_both(10, 20)}
    found[("C", None)] = on_both(30, 20)
    table = transfer_table(found)
    assert [cell.strip() for cell in table.split("\n")[2].split("|")[1:-1]] == [
        "A", "90.0", "—", "—", "90.0\\*", "80.0", "—", "—", "80.0\\*", "85.0\\*",
    ]  # fmt: skip
    assert "**30.0**" in table
    assert table.split("\n\n")[-1].startswith("\\* ")


def test_benchmark_that_an_agent_did_not_play_leaves_averages_open() -> None:
    found = dict(PAPER)
    found[("CAST", "rush_hour")] = {"alfworld": PAPER[("CAST", "rush_hour")]["alfworld"]}
    cast = transfer_table(found).split("\n")[-1]
    assert [cell.strip(" *") for cell in cast.split("|")[4:-1]] == [
        "41.4", "37.9", "23.2", "25.1", "—", "—", "—",
    ]  # fmt: skip


def test_one_benchmark_has_no_overall() -> None:
    table = transfer_table({("ReAct", None): {"webshop": PAPER[("ReAct", None)]["webshop"]}})
    assert "ALFWorld" not in table
    assert "Overall" not in table
    assert "18.8" in table


def test_game_of_another_package_gets_a_column() -> None:
    found = PAPER | {("CAST", "lights_out"): on_both(10, 10)}
    table = transfer_table(found)
    assert "ALFWorld: Lights Out" in table
    assert "\\*" in table  # GiGPO has no agent of it


def test_method_cannot_be_both_trained_and_not() -> None:
    with pytest.raises(ConfigError, match=r"'CAST' .*METHOD=MODEL"):
        transfer_table(PAPER | {("CAST", None): on_both(1, 1)})


def test_a_described_tier_is_named_as_it_was_given() -> None:
    assert column_title("rush_hour:unseen") == "Rush Hour Unseen"
    assert column_title("sokoban:short@6x6x1,2-4,6") == "Sokoban short@6x6x1,2-4,6"
