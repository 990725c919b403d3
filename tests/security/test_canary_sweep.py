"""DESIGN.md law 7: no secret leaves the process in a log, an event, an exception, a repr or a file.

All places where credentials stand (ways_in.py) against all outputs (ways_out.py): one test each.
"""

from __future__ import annotations

import base64
import html
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
import trio

from aiio.env.credential_file import Keyring as OurKeyring
from aiio.env.toml_text import toml_text
from aiio.transports.base import TransportRequest
from tests.serving import serve

from . import ways_in
from .ways_in import IN_FILES, WAYS_IN, config_of, credentials, everything_sent
from .ways_out import WAYS_OUT, Place


@dataclass
class Swept:
    """What one output wrote, and what the server was sent meanwhile."""

    texts: list[str]
    sent: str


def encodings(canary: str) -> set[str]:
    """What *canary* may look like, and its two halves."""
    shown = {canary, quote(canary, safe=""), json.dumps(canary)[1:-1], repr(canary.encode())[2:-1]}
    shown |= {html.escape(canary), canary.replace("/", "\\/"), quote(canary, safe="").lower()}
    shown |= {
        base64.b64encode(text.encode()).decode().rstrip("=")
        for text in (canary, f"user:{canary}", f"{canary}:")
    }
    half = len(canary) * 2 // 3
    return shown | {canary[:half], canary[-half:]}


async def sweep(output: str, folder: Path) -> Swept:
    """Have *output* written."""
    async with serve() as server:
        user = folder / "user"
        user.mkdir(parents=True)
        (user / "config.toml").write_text(toml_text({"providers": config_of(server)}), "utf-8")
        (user / "credentials.toml").write_text(toml_text(credentials()), "utf-8")
        (user / "credentials.toml").chmod(0o600)
        texts = await WAYS_OUT[output](Place(server, folder))
        return Swept(texts, everything_sent(server))


@pytest.fixture(scope="module")
def swept() -> dict[str, Swept]:
    """What was swept in this module, by output; each once."""
    return {}


@pytest.fixture(params=list(WAYS_OUT))
def output(
    request: pytest.FixtureRequest,
    swept: dict[str, Swept],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Swept:
    name = str(request.param)
    if name not in swept:
        monkeypatch.setitem(sys.modules, "keyring", ways_in.Keyring)
        monkeypatch.setattr(OurKeyring, "installed", staticmethod(lambda: True))
        monkeypatch.chdir(tmp_path)
        swept[name] = trio.run(sweep, name, tmp_path)
    return swept[name]


def leaks_in(texts: list[str]) -> str:
    """Return what canaries are in *texts*, with what stands around them."""
    leaks = {
        f"{place}: ...{text[max(0, text.index(form) - 100) :][:240]}..."
        for place, canary in WAYS_IN.items()
        for form in encodings(canary)
        for text in texts
        if form in text
    }
    return "\n\n".join(sorted(leaks))


NEVER_SENT = {"user part", "token as user"}
"""Stay here: our own connections send no user part."""


def missing_in(sent: str) -> set[str]:
    """Return the places whose canary is not in what was *sent*."""
    return {place for place, canary in WAYS_IN.items() if not any(form in sent for form in encodings(canary))}


def test_K1_no_canary_is_in_any_output(output: Swept) -> None:
    leaks = leaks_in(output.texts)
    assert not leaks, leaks
    assert output.texts


@pytest.mark.parametrize("output", ["events, terminals and readouts"], indirect=True)
def test_K1_every_canary_does_reach_the_server(output: Swept) -> None:
    assert missing_in(output.sent) == NEVER_SENT


@pytest.mark.parametrize("output", ["aiio run and trace"], indirect=True)
def test_K1_every_canary_of_a_file_does_reach_the_server_from_the_command_line(output: Swept) -> None:
    assert missing_in(output.sent) & IN_FILES == NEVER_SENT


def test_K1_what_goes_to_a_transport_shows_no_credential() -> None:
    request = TransportRequest(
        url=f"http://user:{WAYS_IN['user part']}@h/?key={WAYS_IN['query']}",
        body=b"refresh_token=" + WAYS_IN["oauth refresh"].encode(),
        proxy=f"http://user:{WAYS_IN['proxy']}@h",
    )
    assert not leaks_in([repr(request)])
