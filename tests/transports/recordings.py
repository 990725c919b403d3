"""Where the recorded provider streams are, if they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(
    os.environ.get("AIIO_RECORDINGS")
    or Path(__file__).resolve().parents[3] / "shared" / "wire" / "recordings"
)


def recordings(ending: str) -> list[Any]:
    """Return the files with this ending; when there are none, one parameter that is skipped."""
    files: list[Any] = sorted(FOLDER.glob(f"*{ending}"))
    skip = pytest.mark.skip(reason="no recordings: set AIIO_RECORDINGS to their folder")
    return files or [pytest.param(Path(f"none{ending}"), marks=skip)]
