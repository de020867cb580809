"""What `make links` says of addresses, asked of a server on this machine."""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import FastAPI

from tests.links import external_links, problems
from tests.support.ports import free_port
from tests.support.site import served


def test_only_addresses_that_do_not_answer_are_named() -> None:
    app = FastAPI()
    app.get("/there")(lambda: "here")
    with served(app) as address:
        nobody = f"http://127.0.0.1:{free_port()}/"
        links = {f"{address}/there": "a.md", f"{address}/gone": "b.md", nobody: "c.md"}
        gone, silent = problems(links)
    assert gone == f"b.md: {address}/gone: status 404"
    assert silent.startswith(f"c.md: {nobody}: ")


def test_pages_link_to_whole_addresses() -> None:
    links = external_links()
    assert len(links) > 20
    for link in links:
        parts = urlsplit(link)
        assert parts.scheme == "https" and "." in parts.netloc and parts.path.strip("/"), link
