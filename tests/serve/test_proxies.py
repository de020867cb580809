"""Turns take no proxy: a real gRPC channel, made as Serve makes its own, beside a real proxy."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import grpc
import pytest
from ray._private.grpc_utils import init_grpc_channel
from ray.serve.handle import DeploymentHandle

from serve.client.link import EngineLink
from tests.support.listening_proxy import listening_proxy


class IdleHandle:
    """A handle that nobody calls."""

    app_name = "engine"
    generate = None

    def options(self, **_: Any) -> IdleHandle:
        return self


def linked() -> None:
    EngineLink(
        cast(DeploymentHandle, IdleHandle()),
        slots=1,
        timeout_s=1.0,
        recovery_timeout_s=1.0,
        on_failed=lambda _: None,
        on_return=lambda: None,
    )


async def called() -> grpc.StatusCode:
    """Return a server's answer to a call that it does not know, or why it cannot be reached."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = init_grpc_channel(f"127.0.0.1:{port}", options=[], asynchronous=True)
    try:
        await channel.unary_unary("/none/none")(b"", timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        await channel.close()
        await server.stop(0)
    raise AssertionError("an unknown call was answered")


@pytest.mark.parametrize("variable", ["http_proxy", "https_proxy", "grpc_proxy"])
def test_a_turn_goes_straight_to_its_engine(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("grpc_proxy", "")  # put back after the test
    monkeypatch.delenv("grpc_proxy")
    with listening_proxy() as (url, asked):
        monkeypatch.setenv(variable, url)
        linked()
        assert asyncio.run(called()) == grpc.StatusCode.UNIMPLEMENTED
    assert asked == []
