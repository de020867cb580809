"""WebShop's data: what is read, in which order goals come, what a search finds."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.envs.webshop.benchmark import Webshop
from cast_ray.envs.webshop.catalogue import Catalogue, match_expression
from cast_ray.envs.webshop.catalogue_build import (
    DataFiles,
    catalogue_file,
    elements_of,
    find_data_files,
    write_catalogue,
)
from cast_ray.envs.webshop.goals import (
    NO_LIMIT,
    SyntheticSource,
    draw_limit,
    shuffled,
    synthetic_goals,
)
from cast_ray.errors import EnvironmentSetupError, PuzzleError
from tests.support import made_shop
from tests.support.made_shop import CLOCK, MUG, RUG, SOFA, TABLE, TEAPOT, lamp, write_shop

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = write_shop(tmp_path / "data")
    monkeypatch.setenv("WEBSHOP_DATA", str(folder))
    return folder


@pytest.fixture
def catalogue(data: Path) -> Iterator[Catalogue]:
    opened = Catalogue(catalogue_file(find_data_files()))
    yield opened
    opened.close()


# What is read


def test_products_without_a_proper_number_and_second_mentions_are_left_out(
    catalogue: Catalogue,
) -> None:
    assert catalogue.num_products == len(made_shop.products()) - 3
    assert catalogue.product(MUG).title == "Brindle Stoneware Mug"
    with pytest.raises(KeyError):
        catalogue.product("nan")


def test_options_are_read_in_the_spelling_of_the_original(catalogue: Catalogue) -> None:
    assert catalogue.product(SOFA).options == (
        ("color", ("moss  |  grey", "dark red", "navy")),
        ("size", ("2 seats", "3 seats")),
    )
    assert catalogue.product(TABLE).options == (("color", ("walnut", "white")),)
    assert catalogue.product(SOFA).query == "sofas"
    assert catalogue.product(MUG).bullets == ("Dishwasher safe",)


def test_prices_are_one_figure_a_draw_from_a_range_or_a_hundred(catalogue: Catalogue) -> None:
    shown = {asin: catalogue.product(asin) for asin in (SOFA, TABLE, TEAPOT, RUG)}
    assert {asin: product.price_tag for asin, product in shown.items()} == {
        SOFA: "$899.0",
        TABLE: "$49.5 to $1180.25",
        TEAPOT: "$100.0",
        RUG: "$30.0 to $75.0",
    }
    # random.seed(233); random.uniform(49.5, 1180.25); random.uniform(30, 75), by hand.
    assert [shown[asin].price for asin in (SOFA, TABLE, TEAPOT, RUG)] == pytest.approx(
        [899.0, 821.2107704459692, 100.0, 58.27440949414411], rel=1e-15
    )


def test_the_full_set_goes_before_the_small_one(data: Path) -> None:
    assert find_data_files().products.name == "items_shuffle_1000.json"
    write_shop(data, is_full=True)
    files = find_data_files()
    assert files.products.name == "items_shuffle.json"
    assert files.attributes.name == "items_ins_v2.json"
    (data / "items_ins_v2.json").unlink()
    assert find_data_files().products.name == "items_shuffle_1000.json"


def test_missing_data_are_named_with_a_way_to_get_them(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "items_human_ins.json").unlink()
    with pytest.raises(EnvironmentSetupError, match=r"items_human_ins\.json"):
        Webshop().puzzles("test")
    monkeypatch.delenv("WEBSHOP_DATA")
    with pytest.raises(EnvironmentSetupError, match=r"WEBSHOP_DATA.*setup\.sh"):
        Webshop().puzzles("test")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("items_shuffle_1000", '"name": "Wool Runner",', "", r"product 7 \(B000000005\).*'name'"),
        ("items_shuffle_1000", '"$12.99"', '"dear"', r"product 4 .*B000000003.*'pricing'"),
        ("items_shuffle_1000", '"$12.99"', "[12.99]", r"product 4 .*'pricing'.*text"),
        (
            "items_shuffle_1000",
            '"value": "white"',
            '"v": 1',
            r"product 1 .*option 'color'.*'value'",
        ),
        ("items_shuffle_1000", '"B000000002",', '"B000000002"', r"items_shuffle_1000.*element 1"),
        ("items_shuffle_1000", "[", "{", r"items_shuffle_1000.*JSON array"),
        ("items_ins_v2_1000", '"hand woven"\n', "7\n", r"items_ins_v2_1000.*B000000005"),
        ("items_ins_v2_1000", "{", "[", r"items_ins_v2_1000.*JSON"),
        (
            "items_human_ins",
            '"i need a clock without a sound."',
            "7",
            r"human_ins.*B000000006.*'instruction'.*7",
        ),
    ],
)
def test_broken_data_are_named_by_file_and_product(
    data: Path, file: str, old: str, new: str, message: str
) -> None:
    path = data / f"{file}.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(PuzzleError, match=message):
        Webshop().puzzles("test")
    assert not list((data.parent / "cache" / "cast_ray").glob("*.sqlite"))


@given(
    st.lists(
        st.recursive(
            st.integers() | st.text(max_size=5) | st.booleans() | st.none(),
            lambda inner: st.lists(inner, max_size=3),
        )
    ),
    st.sampled_from([None, 1]),
)
def test_elements_of_an_array_are_those_of_json(values: list[object], indent: int | None) -> None:
    path = Path(os.environ["XDG_CACHE_HOME"]).parent / "array.json"
    path.write_text(json.dumps(values, indent=indent))
    assert list(elements_of(path)) == values


def test_elements_longer_than_a_reading_and_on_its_edge_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "array.json"
    values = ["a" * 3_000_000, *range(1_000_000, 1_300_000), {"b": "c" * 1_500_000}, 12]
    path.write_text(json.dumps(values))
    assert list(elements_of(path)) == values


@pytest.mark.parametrize(
    "text", ["", "[", "[1", "[1,", "[1,]", "[1 2]", "[1] 2", "7", "[1}", "[,]"]
)
def test_no_array_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "array.json"
    path.write_text(text)
    with pytest.raises(PuzzleError, match=r"array\.json"):
        list(elements_of(path))


# Goals


def test_goals_come_in_the_order_and_with_the_limits_of_a_seeded_original(
    catalogue: Catalogue,
) -> None:
    # By hand: prices are drawn first (two ranges), then sample([0, 1, 2, 3], 2) for sofa, table,
    # mug and rug gives 3, 1, 1 and 2 as the larger one; the clock is too dear for a limit. Then
    # random.seed(233) and a shuffle of five give 2, 0, 3, 4, 1.
    goals = [goal for _, goal in catalogue.goals("human", slice(0, None))]
    assert [(goal.asin, goal.price_upper) for goal in goals] == [
        (MUG, 30.0),
        (SOFA, 930.0),
        (RUG, 80.0),
        (CLOCK, NO_LIMIT),
        (TABLE, 840.0),
    ]
    assert goals[3].instruction == "i need a clock without a sound"
    assert goals[4].instruction == (
        "i want a solid wood table in walnut, and price lower than 840.00 dollars"
    )
    assert goals[4].options == (("", "walnut"),)


def test_goals_equal_those_of_a_naive_walk_with_the_global_generator(catalogue: Catalogue) -> None:
    random.seed(233)
    prices = {
        SOFA: 899.0,
        TABLE: random.uniform(49.5, 1180.25),
        MUG: 12.99,
        RUG: random.uniform(30.0, 75.0),
    }
    limits: dict[str, float] = {}
    for asin, price in prices.items():
        steps = [10.0 * i for i in range(1, 100) if 10.0 * i > price][:4]
        limits[asin] = sorted(random.sample(steps, 2))[1]
    order = [SOFA, TABLE, MUG, RUG, CLOCK]
    random.seed(233)
    random.shuffle(order)
    found = [goal for _, goal in catalogue.goals("human", slice(0, None))]
    assert [goal.asin for goal in found] == order
    assert {goal.asin: goal.price_upper for goal in found} == {**limits, CLOCK: NO_LIMIT}


def test_synthetic_goals_are_all_combinations_under_one_limit_a_product(
    catalogue: Catalogue,
) -> None:
    random.seed(233)
    table, rug = random.uniform(49.5, 1180.25), random.uniform(30.0, 75.0)
    steps = [10.0 * i for i in range(1, 100)]
    limits = [max(random.sample([s for s in steps if s > p][:4], 2)) for p in (table, rug)]
    words = [
        f"Find me easy clean side tables with solid wood with color: {color}"
        for color in ("walnut", "white")
    ] + [
        f"Find me hand woven rugs with color: {color}, and size: {size}"
        for color in ("navy", "rust")
        for size in ("small", "large")
    ]
    order = list(range(6))
    random.seed(42)
    random.shuffle(order)
    expected = [
        f"{words[place]}, and price lower than {limits[place >= 2]:.2f} dollars" for place in order
    ]
    goals = [goal for _, goal in catalogue.goals("synthetic", slice(0, 500))]
    assert [goal.instruction for goal in goals] == expected


def test_shuffle_is_that_of_python_for_seed_233() -> None:
    assert list(shuffled(7, 233)) == [2, 0, 3, 4, 1, 6, 5]
    assert list(shuffled(0, 233)) == []
    expected = list(range(2000))
    random.Random(233).shuffle(expected)
    assert list(shuffled(2000, 233)) == expected


def test_first_synthetic_goals_are_the_beginning_of_all() -> None:
    sources = [
        SyntheticSource(
            asin=f"B{number}",
            price=5.0 * number,
            instruction=f"find {number}",
            attributes=("a",),
            offers=tuple((name, tuple("xyz")[:number]) for name in ("q", "p")),
        )
        for number in range(4)
    ]
    every = synthetic_goals(sources, random.Random(1), num_goals=500)
    assert len(every) == 0 + 1 + 4 + 9
    assert len({goal.instruction for goal in every}) == 14
    assert synthetic_goals(sources, random.Random(1), num_goals=5) == every[:5]


@pytest.mark.parametrize(
    ("price", "limits"),
    [
        (5.0, {20.0, 30.0, 40.0}),
        (10.0, {30.0, 40.0, 50.0}),
        (975.0, {990.0}),
        (980.0, {NO_LIMIT}),
    ],
)
def test_a_limit_is_the_larger_of_two_of_the_next_four_tens(
    price: float, limits: set[float]
) -> None:
    generator = random.Random(0)
    assert {draw_limit(price, generator)[0] for _ in range(200)} == limits


def test_tiers_are_slices_of_the_shuffled_goals(tmp_path: Path, data: Path) -> None:
    many = {lamp(0): [made_shop.instruction(f"lamp {i}", ["warm light"], []) for i in range(1510)]}
    (data / "items_human_ins.json").write_text(json.dumps(many))
    shop = Webshop()
    tiers = {tier: shop.puzzles(tier) for tier in ("test", "validation", "train")}
    assert {tier: len(puzzles) for tier, puzzles in tiers.items()} == {
        "test": 500,
        "validation": 1000,
        "train": 10,
    }
    order = list(range(1510))
    random.Random(233).shuffle(order)
    boards = [json.loads(puzzle.board) for puzzles in tiers.values() for puzzle in puzzles]
    assert [board["place"] for board in boards] == list(range(1510))
    assert [int(board["instruction"].split(",")[0].split()[1]) for board in boards] == order
    assert len({puzzle.puzzle_id for puzzles in tiers.values() for puzzle in puzzles}) == 1510


def test_a_tier_without_goals_is_refused() -> None:
    with pytest.raises(PuzzleError, match=r"train.*1500"):
        Webshop().puzzles("train")


# Search


def test_search_stems_words(catalogue: Catalogue) -> None:
    assert catalogue.search("sofa") == catalogue.search("SOFAS") == (SOFA,)
    assert catalogue.search("pouring drops") == (TEAPOT,)


def test_search_takes_any_of_the_words_and_the_better_match_first(catalogue: Catalogue) -> None:
    assert catalogue.search("brindle mug")[:2] == (MUG, TEAPOT)
    assert catalogue.search("brindle teapot zebra")[:2] == (TEAPOT, MUG)


def test_search_reads_title_description_first_feature_and_options_alone(
    catalogue: Catalogue,
) -> None:
    assert catalogue.search("runner") == (RUG,)
    assert catalogue.search("stuffed") == (SOFA,)
    assert catalogue.search("washable") == (SOFA,)
    assert set(catalogue.search("navy")) == {SOFA, RUG}
    assert catalogue.search("dial") == (CLOCK,)
    assert catalogue.search("oak") == ()  # The second feature.
    assert catalogue.search("furniture") == ()  # A category.
    assert catalogue.search("woven") == ()  # An attribute.


def test_search_breaks_ties_by_the_order_of_the_catalogue(catalogue: Catalogue) -> None:
    like = [lamp(number) for number in range(made_shop.NUM_LAMPS) if number != 7]
    assert [asin for asin in catalogue.search("desk") if asin != lamp(7)] == like


@pytest.mark.parametrize("words", ["", "   ", "the and of with", '"', "-*()^:{}", "_", "²"])
def test_search_without_words_finds_nothing(catalogue: Catalogue, words: str) -> None:
    assert catalogue.search(words) == ()


@pytest.mark.parametrize(
    "words",
    ["NEAR(kettle)", '"kettle"', "kettle*", "words:kettle", "NOT kettle", "-kettle", "+kettle^2"],
)
def test_search_takes_signs_and_operators_as_text(catalogue: Catalogue, words: str) -> None:
    assert MUG in catalogue.search(words)


def test_search_knows_letters_beyond_ascii(catalogue: Catalogue) -> None:
    assert catalogue.search("CAFÉ") == catalogue.search("cafe") == (MUG,)
    assert catalogue.search("灯 ламп") == ()


def test_a_query_of_many_words_is_cut() -> None:
    words = " ".join(f"w{number} w{number}" for number in range(1000))
    assert match_expression(words).split(" OR ") == [f'"w{number}"' for number in range(64)]


@given(st.text(max_size=60))
def test_any_query_is_answered(words: str) -> None:
    catalogue = Catalogue(catalogue_file(find_data_files()))
    assert len(catalogue.search(words)) <= 29
    catalogue.close()


def word_shop(folder: Path, texts: list[str]) -> Catalogue:
    """Return a catalogue of products with these descriptions and an equal title."""
    elements = [
        made_shop.product(
            f"B{number:09d}", "x", query="", product_category="", pricing=None, description=text
        )
        for number, text in enumerate(texts)
    ]
    names = {"products": elements, "attributes": {}, "instructions": {}}
    for name, content in names.items():
        (folder / name).write_text(json.dumps(content))
    write_catalogue(folder / "words", DataFiles(**{name: folder / name for name in names}))
    return Catalogue(folder / "words")


def naive_ranking(texts: list[str], query: list[str]) -> list[int]:
    """Return the places of the texts that hold a word of the query, by BM25, then by place."""
    counts = [Counter(["x", *text.split()]) for text in texts]
    mean = sum(count.total() for count in counts) / len(counts)

    def score(count: Counter[str]) -> float:
        total = 0.0
        for word in query:
            num_with = sum(word in other for other in counts)
            rarity = max(math.log((len(counts) - num_with + 0.5) / (num_with + 0.5)), 1e-6)
            norm = count[word] + 1.2 * (1 - 0.75 + 0.75 * count.total() / mean)
            total += rarity * count[word] * 2.2 / norm
        return total

    scores = [round(score(count), 9) for count in counts]
    found = [place for place, value in enumerate(scores) if value > 0]
    return sorted(found, key=lambda place: (-scores[place], place))


def test_ranking_is_bm25_of_a_naive_count_and_stops_at_fifty(tmp_path: Path) -> None:
    generator = random.Random(5)
    words = [f"{letter}q" for letter in "bcdfghjk"]
    texts = [" ".join(generator.choices(words, k=generator.randint(1, 9))) for _ in range(200)]
    catalogue = word_shop(tmp_path, texts)
    for _ in range(20):
        query = generator.sample(words, 2)
        expected = [f"B{place:09d}" for place in naive_ranking(texts, query)]
        assert len(expected) > 50
        assert list(catalogue.search(" ".join(query))) == expected[:50]
    catalogue.close()


# The file in the cache


def test_file_is_made_once_and_anew_when_the_data_change(data: Path) -> None:
    first = catalogue_file(find_data_files())
    made = first.stat().st_mtime_ns
    assert catalogue_file(find_data_files()) == first
    assert first.stat().st_mtime_ns == made
    path = data / "items_human_ins.json"
    path.write_text(path.read_text() + "\n")
    assert catalogue_file(find_data_files()) != first


def test_two_makings_are_equal_byte_for_byte(data: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_catalogue(tmp_path / name, find_data_files())
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_threads_at_once_make_one_file(data: Path) -> None:
    files = find_data_files()
    with ThreadPoolExecutor(4) as threads:
        paths = list(threads.map(lambda _: catalogue_file(files), range(4)))
    assert len(set(paths)) == 1
    assert not list(paths[0].parent.glob(".*"))


_CHILD = """
import sys
from cast_ray.envs.webshop.benchmark import Webshop
from cast_ray.envs.webshop.catalogue_build import catalogue_file
from cast_ray.envs.webshop.catalogue_build import find_data_files
print("ready", flush=True)
sys.stdin.readline()
print(catalogue_file(find_data_files()).stat().st_ino)
print([(puzzle.puzzle_id, puzzle.board) for puzzle in Webshop().puzzles("test")])
"""


def test_processes_at_once_make_one_file_and_read_the_same_goals(data: Path) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for child in children:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    outputs = [child.communicate(timeout=60)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert outputs[0] == outputs[1]
    here = [(puzzle.puzzle_id, puzzle.board) for puzzle in Webshop().puzzles("test")]
    assert outputs[0].splitlines()[1] == str(here)
    cache = data.parent / "cache" / "cast_ray"
    assert sorted(path.suffix for path in cache.iterdir()) == [".lock", ".sqlite"]


def test_a_broken_file_in_the_cache_is_named(data: Path) -> None:
    path = catalogue_file(find_data_files())
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(EnvironmentSetupError, match="delete it"):
        Webshop().puzzles("test")


def test_a_cache_that_cannot_be_written_is_named(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(EnvironmentSetupError, match="cannot be written"):
        Webshop().puzzles("test")
