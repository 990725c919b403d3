"""`aiio models`."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiio.cli.exits import CliFault
from aiio.cli.models_list import models
from aiio.env.errors import ErrorKind, ProviderError
from tests.cli.printed import Printed
from tests.serving import respond, serve

JSON = {"content-type": "application/json"}
LIST = respond(b'{"data": [{"id": "a", "context_length": 4096}, {"id": "v/b"}]}', headers=JSON)
NOBODY = {name: {"url": "http://127.0.0.1:1"} for name in ("ollama", "llamacpp", "vllm")}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def test_models_are_printed_as_selectors(tmp_path: Path) -> None:
    async with serve(LIST) as server:
        settings = {"providers": {"mine": {"url": server.url}}}
        with Printed(tmp_path, settings) as printed:
            assert await models(printed.session, printed.out, "mine") == 0
            assert printed.text() == "model     context\nmine/a    4096\nmine/v/b  -\n"
            await models(printed.session, printed.out, "mine")
            assert len(server.requests) == 1
            await models(printed.session, printed.out, "mine", refresh=True)
            assert len(server.requests) == 2
            await printed.env.aclose()
        with Printed(tmp_path, settings) as printed:
            await models(printed.session, printed.out, "mine", json_lines=True)
            assert printed.rows() == [{"context_window": 4096, "model": "mine/a"}, {"model": "mine/v/b"}]
    assert len(server.requests) == 2


async def test_all_endpoints_that_answer_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serve(LIST) as server:
        with Printed(tmp_path, {"providers": {**NOBODY, "mine": {"url": server.url}}}) as printed:
            assert await models(printed.session, printed.out, None) == 0
            assert "mine/a" in printed.text()
            await printed.env.aclose()
    assert capsys.readouterr().err == ""
    with Printed(tmp_path, {"providers": NOBODY}) as printed:
        assert await models(printed.session, printed.out, None) == 0
        assert printed.text() == ""
        await printed.env.aclose()
    assert "no endpoint answered" in capsys.readouterr().err


async def test_an_endpoint_that_does_not_answer_says_why(tmp_path: Path) -> None:
    async with serve(respond(b"{}", status=401)) as server:
        with Printed(tmp_path, {"providers": {"mine": {"url": server.url}}}) as printed:
            for refresh in (False, True):
                with pytest.raises(ProviderError) as caught:
                    await models(printed.session, printed.out, "mine", refresh=refresh)
                assert caught.value.kind is ErrorKind.AUTH
            with pytest.raises(CliFault, match="unknown endpoint 'nobody'"):
                await models(printed.session, printed.out, "nobody")
            await printed.env.aclose()
