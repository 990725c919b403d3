"""The peers' URLs as fixtures; a test skips, with the reason, where a peer can't be installed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import processes


def _url(start: Callable[[], str]) -> str:
    try:
        return start()
    except processes.NotHereError as exc:
        pytest.skip(str(exc))


@pytest.fixture(scope="session")
def aimock() -> str:
    """The URL of aimock, which answers as `aimock-answers.json` says."""
    return _url(processes.aimock)


@pytest.fixture
def llmock() -> str:
    """The URL of llmock, which has forgotten everything."""
    url = _url(processes.llmock)
    processes.ask(f"{url}/_llmock/reset", {})
    return url
