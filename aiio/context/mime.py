"""Media types of local files, and the blocks that carry them."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from types import MappingProxyType

from .types import BinaryBlock, Block, ContentType, Message, user_message

_OOXML = "application/vnd.openxmlformats-officedocument."

MIME_BY_EXTENSION: Mapping[str, str] = MappingProxyType(
    {
        "png": "image/png",
        "jpg": "image/jpeg",
        "jpeg": "image/jpeg",
        "gif": "image/gif",
        "webp": "image/webp",
        "bmp": "image/bmp",
        "svg": "image/svg+xml",
        "avif": "image/avif",
        "heic": "image/heic",
        "heif": "image/heif",
        "tif": "image/tiff",
        "tiff": "image/tiff",
        "txt": "text/plain",
        "log": "text/plain",
        "md": "text/markdown",
        "markdown": "text/markdown",
        "csv": "text/csv",
        "tsv": "text/tab-separated-values",
        "html": "text/html",
        "htm": "text/html",
        "css": "text/css",
        "js": "text/javascript",
        "mjs": "text/javascript",
        "cjs": "text/javascript",
        "ts": "text/typescript",
        "jsx": "text/jsx",
        "tsx": "text/tsx",
        "json": "application/json",
        "jsonl": "application/x-ndjson",
        "ndjson": "application/x-ndjson",
        "xml": "application/xml",
        "yaml": "application/yaml",
        "yml": "application/yaml",
        "toml": "application/toml",
        "pdf": "application/pdf",
        "doc": "application/msword",
        "docx": _OOXML + "wordprocessingml.document",
        "xls": "application/vnd.ms-excel",
        "xlsx": _OOXML + "spreadsheetml.sheet",
        "ppt": "application/vnd.ms-powerpoint",
        "pptx": _OOXML + "presentationml.presentation",
        "zip": "application/zip",
        "gz": "application/gzip",
        "tar": "application/x-tar",
        "wasm": "application/wasm",
        "mp3": "audio/mpeg",
        "wav": "audio/wav",
        "ogg": "audio/ogg",
        "flac": "audio/flac",
        "m4a": "audio/mp4",
        "mp4": "video/mp4",
        "webm": "video/webm",
        "mov": "video/quicktime",
        "avi": "video/x-msvideo",
    }
)
"""Media types by file extension: lower case, without the dot."""

_MAGIC = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
)


def detect_mime(*, path: str | None = None, buffer: bytes | bytearray | memoryview | None = None) -> str:
    """Return a media type: by the extension of *path*, by the first bytes of *buffer*, or octet-stream."""
    name = _basename(path) if path else ""
    stem, _, extension = name.rpartition(".")
    if stem:  # a dot in front (`.png`) begins no extension
        known = MIME_BY_EXTENSION.get(extension.lower())
        if known is not None:
            return known
    head = bytes(memoryview(buffer).cast("B")[:4]) if buffer is not None else b""
    return next((kind for magic, kind in _MAGIC if head.startswith(magic)), "application/octet-stream")


def binary_content(path: str, data: bytes | bytearray | memoryview) -> Block:
    """Return a binary block holding *data* in base64, under the last part of *path* only.

    TypeError: *path* is not a non-empty string, or *data* not bytes-like.
    """
    if not isinstance(path, str):
        raise TypeError(f"path must be a string, not {path!r}")
    if not path:
        raise TypeError("path must not be empty")
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"file data must be bytes-like, not a {type(data).__name__}")
    block: BinaryBlock = {
        "type": ContentType.BINARY.value,
        "mimetype": detect_mime(path=path, buffer=data),
        "filename": _basename(path),
        "content": base64.b64encode(data).decode("ascii"),
    }
    return {**block}


def file_message(path: str, data: bytes | bytearray | memoryview) -> Message:
    """Return a user message holding one local file. TypeError: see `binary_content`."""
    return user_message([binary_content(path, data)])


def _basename(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]
