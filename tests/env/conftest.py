"""Fixtures: a machine on which nobody keeps anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiio.env.credential_file import Keyring


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No keyring, and a working directory of our own."""
    monkeypatch.setattr(Keyring, "installed", staticmethod(lambda: False))
    monkeypatch.chdir(tmp_path)
