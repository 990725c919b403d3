"""Media types and file blocks."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from aiio.context.mime import MIME_BY_EXTENSION, binary_content, detect_mime, file_message


@pytest.mark.parametrize(
    ("path", "buffer", "expected"),
    [
        ("a.png", None, "image/png"),
        ("dir.d/A.JPEG", b"%PDF", "image/jpeg"),
        ("C:\\pics\\a.svg", None, "image/svg+xml"),
        ("report.docx", None, "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        (".png", None, "application/octet-stream"),
        ("dir/.png", None, "application/octet-stream"),
        ("x.", b"\x89PNG\r\n", "image/png"),
        ("x.unknown", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("dir.png/x", b"GIF89a", "image/gif"),
        (None, b"%PDF-1.7", "application/pdf"),
        (None, bytearray(b"PK\x03\x04"), "application/zip"),
        ("x", memoryview(b"plain"), "application/octet-stream"),
        (None, None, "application/octet-stream"),
    ],
)
def test_the_extension_decides_then_the_first_bytes(path: str | None, buffer: Any, expected: str) -> None:
    assert detect_mime(path=path, buffer=buffer) == expected


def test_options_are_no_none() -> None:
    with pytest.raises(TypeError):
        detect_mime(None)  # type: ignore[call-arg]


def test_the_table_is_frozen_and_lower_case() -> None:
    with pytest.raises(TypeError):
        MIME_BY_EXTENSION["x"] = "y"  # type: ignore[index]
    assert all(key == key.lower() and "." not in key for key in MIME_BY_EXTENSION)
    assert MIME_BY_EXTENSION["tsv"] == "text/tab-separated-values"


@pytest.mark.parametrize("path", ["/home/me/secret/a.pdf", "C:\\me\\a.pdf", "a.pdf"])
def test_a_file_block_keeps_the_basename_only(path: str) -> None:
    data = bytes(range(256))
    block = binary_content(path, data)
    assert block == {
        "type": "binary",
        "mimetype": "application/pdf",
        "filename": "a.pdf",
        "content": base64.b64encode(data).decode(),
    }
    assert file_message(path, memoryview(data)) == {"type": 2, "content": [block]}


@pytest.mark.parametrize(("path", "data"), [("", b""), (None, b""), (5, b""), ("a", "text"), ("a", None)])
def test_a_file_needs_a_path_and_bytes(path: Any, data: Any) -> None:
    with pytest.raises(TypeError):
        binary_content(path, data)
