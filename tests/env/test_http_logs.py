"""What the HTTP libraries log is masked (field-faults E6; spec/io.md, decision 10)."""

from __future__ import annotations

import gc
import importlib
import logging
from typing import Any

import pytest

from aiio.context.types import user_message
from aiio.env import Env
from aiio.env.http_logs import _mask
from aiio.io import IO
from tests.serving import Exchange, respond, serve
from tests.transports.proxying import run_proxy

QUOTED = "canary%200123456789"
JSON = {"content-type": "application/json"}


async def nothing(exchange: Exchange) -> None:
    await respond(b"{}", status=400, headers=JSON)(exchange)


async def write(env: Env) -> None:
    async with env:
        terminal = await IO(env=env, model="mine/m").write([user_message("hi")])
        assert terminal.type == "error"


def shown(caplog: pytest.LogCaptureFixture, library: str) -> str:
    records = [record for record in caplog.records if record.name.partition(".")[0] == library]
    assert records, f"{library} logged nothing: this test proves nothing"
    return "\n".join(f"{record.getMessage()} {record.__dict__}" for record in records)


@pytest.mark.parametrize("way", ["proxy", "httpx", "httpx2"])
async def test_decision_10_no_library_logs_a_credential_of_a_url(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve(nothing) as server, run_proxy() as proxy:
        url = f"{server.url}/v1?key={QUOTED}&subscription=canary-value-77"
        policy: dict[str, Any] = {"url": url, "key_required": False}
        settings: dict[str, Any] = {"providers": {"mine": policy}, "mine": {"auth": "canary-value-77"}}
        if way == "proxy":
            await write(Env({**settings, "proxy": proxy.url}, environ={}))
        else:
            async with importlib.import_module(way).AsyncClient(trust_env=False) as client:
                await write(Env(settings, environ={}, http_client=client))
    libraries = ("httpx", "httpcore") if way != "httpx2" else ("httpx2", "httpcore2")
    for library in libraries:
        text = shown(caplog, library)
        assert "canary" not in text, text
    assert "/v1/chat/completions?key=***&subscription=***" in shown(caplog, libraries[0])


def test_every_logger_of_the_libraries_is_covered() -> None:
    Env(environ={})
    for library in ("httpx", "httpcore", "httpx2", "httpcore2", "trio-websocket"):
        importlib.import_module(library.replace("-", "_"))
        names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == library]
        assert names
        for name in names:
            assert logging.getLogger(name).filters == [_mask], name


def test_what_has_no_secret_passes_unchanged_and_a_bad_record_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = Env({"mine": {"auth": "canary-value-88"}}, environ={})
    other = Env({"mine": {"auth": "canary-value-99"}}, environ={})  # half of it is the same
    caplog.set_level(logging.INFO, "httpx")
    logger = logging.getLogger("httpx")
    logger.info("GET %s", "http://h/canary-value-88")
    logger.info("%d", "no number")
    logger.info("plain")
    assert [record.getMessage() for record in caplog.records] == [
        "GET http://h/***",
        "unreadable log record (TypeError)",
        "plain",
    ]
    count = len(_mask.scrubbers)
    del env, other
    gc.collect()
    assert len(_mask.scrubbers) < count
