"""The peers' URLs as fixtures; a test skips, with the reason, where a peer can't be installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from . import processes
from .nginx import Front, tls_before


def _url(start: Callable[[], str]) -> str:
    try:
        return start()
    except processes.NotHereError as exc:
        pytest.skip(str(exc))


@pytest.fixture(scope="session")
def aimock() -> str:
    """The URL of aimock, which answers as `aimock-answers.json` says."""
    return _url(processes.aimock)


@pytest.fixture(scope="session")
def aimock_behind_nginx(aimock: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """The same aimock, reached over TLS through nginx."""
    try:
        with tls_before(aimock, tmp_path_factory.mktemp("nginx")) as front:
            yield front
    except processes.NotHereError as exc:
        pytest.skip(str(exc))


@pytest.fixture
def llmock() -> str:
    """The URL of llmock, which has forgotten everything."""
    url = _url(processes.llmock)
    processes.ask(f"{url}/_llmock/reset", {})
    return url
