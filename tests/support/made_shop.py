"""A small shop of our own invention, in the file format of WebShop's data."""

from __future__ import annotations

import json
from pathlib import Path

NUM_LAMPS = 23
SOFA, TABLE, MUG, TEAPOT, RUG, CLOCK = (f"B00000000{digit}" for digit in "123456")


def lamp(number: int) -> str:
    """Return the number of one of the ``NUM_LAMPS`` lamps."""
    return f"B0000LMP{number:02d}"


def product(
    asin: str,
    name: str,
    *,
    query: str,
    product_category: str,
    pricing: str | None,
    description: str = "",
    bullets: list[str] | str = "",
    options: dict[str, list[str] | None] | None = None,
) -> dict[str, object]:
    """Return a product as an element of the product file."""
    return {
        "asin": asin,
        "name": name,
        "query": query,
        "category": "home",
        "product_category": product_category,
        "pricing": pricing,
        "full_description": description,
        "small_description": bullets,
        "images": ["none"],
        "customization_options": {
            option: None if values is None else [{"value": value} for value in values]
            for option, values in (options or {}).items()
        },
    }


def products() -> list[dict[str, object]]:
    """Return all products, also those that the shop leaves out."""
    return [
        product(
            SOFA,
            "Hollow Hill Corner Sofa",
            query="Sofas ",
            product_category="Home › Furniture › Sofas",
            pricing="$899.00",
            description="Deep seats, stuffed by hand.",
            bullets=["Washable cover", "Oak legs"],
            options={"Color": ["Moss / Grey", "Dark Red", "Navy"], "Size": ["2 Seats", "3 Seats"]},
        ),
        product(
            TABLE,
            "Hollow Hill Side Table",
            query="side tables",
            product_category="Home › Furniture › Tables",
            pricing="$49.50 - $1,180.25",
            description="A table for a lamp.",
            bullets=["Solid wood"],
            options={"color": ["walnut", "white"], "shape": None},
        ),
        product("nan", "Nobody's", query="", product_category="", pricing=None),
        product("B000000000099", "Too Long", query="", product_category="", pricing=None),
        product(
            MUG,
            "Brindle Stoneware Mug",
            query="mugs",
            product_category="Kitchen › Cups › Mugs",
            pricing="$12.99",
            description='Holds 12 oz. "NEAR" the kettle AND -cup: café*',
            bullets="Dishwasher safe",
            options={"Pattern Name": ["dots", "stripes", "description"]},
        ),
        product(MUG, "A Second Mug", query="mugs", product_category="", pricing="$1.00"),
        product(
            TEAPOT,
            "Brindle Stoneware Teapot",
            query="teapots",
            product_category="Kitchen › Pots › Teapots",
            pricing="",
            bullets=["Pours without a drop"],
        ),
        product(
            RUG,
            "Wool Runner",
            query="rugs",
            product_category="Home › Floors › Rugs",
            pricing="$30.00 - $75.00",
            description="Long enough for a hall.",
            options={"size": ["small", "large"], "color": ["navy", "rust"]},
        ),
        product(
            CLOCK,
            "Quiet Wall Clock",
            query="clocks",
            product_category="Home › Walls › Clocks",
            pricing="$1,990.00",
            options={"size": ["10 in", "14 in"], "dial": ["10 in", "bare"]},
        ),
        *(
            product(
                lamp(number),
                f"Desk Lamp No {number}",
                query="lamps",
                product_category="Home › Lights › Lamps",
                pricing=f"${20 + number}.00",
                description="A lamp. " * (number == 7),
            )
            for number in range(NUM_LAMPS)
        ),
    ]


def attributes() -> dict[str, object]:
    """Return attributes by product, and two made instructions."""
    return {
        SOFA: {"attributes": ["washable cover", "high density"]},
        TABLE: {
            "attributes": ["solid wood", "easy clean"],
            "instruction": "Find me easy clean side tables with solid wood",
            "instruction_attributes": ["easy clean", "solid wood"],
        },
        MUG: {"attributes": ["dishwasher safe"]},
        RUG: {
            "attributes": ["hand woven"],
            "instruction": "Find me hand woven rugs",
            "instruction_attributes": ["hand woven"],
        },
        CLOCK: {},
        **{lamp(number): {"attributes": ["warm light"]} for number in range(NUM_LAMPS)},
    }


def instruction(text: str, attributes: list[str], options: list[str]) -> dict[str, object]:
    """Return what a person wrote about a product."""
    return {
        "instruction": text,
        "instruction_attributes": attributes,
        "instruction_options": options,
    }


def instructions() -> dict[str, list[dict[str, object]]]:
    """Return what people wrote, by product; one of them without attributes, one of nothing here."""
    return {
        "B0NOWHERE0": [instruction("find it", ["rare"], [])],
        CLOCK: [instruction("i need a clock without a sound.", ["silent"], [])],
        TABLE: [
            instruction("i want a solid wood table in walnut.", ["solid wood"], ["walnut"]),
            instruction("a table", [], []),
        ],
        SOFA: [
            instruction(
                "get me a dark red sofa for three with a washable cover",
                ["washable cover", "high density"],
                ["dark red", "3 seats"],
            )
        ],
        MUG: [instruction("a dotted mug, dishwasher safe", ["dishwasher safe"], ["dots"])],
        RUG: [instruction("a large hand woven rug", ["hand woven"], ["large"])],
    }


def write_shop(folder: Path, *, is_full: bool = False) -> Path:
    """Write the three data files into a new folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    suffix = "" if is_full else "_1000"
    for name, content in (
        (f"items_shuffle{suffix}.json", products()),
        (f"items_ins_v2{suffix}.json", attributes()),
        ("items_human_ins.json", instructions()),
    ):
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
    return folder
