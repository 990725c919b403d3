"""One request at a time: `IO`, its limits, and what provider authors need beside it."""

from __future__ import annotations

from aiio import context as Context
from aiio.env.env import Env
from aiio.env.errors import ErrorKind, HttpStatusError, ProviderError, classify_error
from aiio.providers.base import define_provider

from .defaults import (
    DefaultConnection,
    default_close,
    default_connect,
    default_read,
    default_send,
    default_send_body,
    default_send_headers,
)
from .io import IO
from .limits import connect_budget, resolve_timeout
from .sanitize import body_bytes, sanitize_request
from .state import IOState
from .stream import EventStream

__all__ = [
    "IO",
    "Context",
    "DefaultConnection",
    "Env",
    "ErrorKind",
    "EventStream",
    "HttpStatusError",
    "IOState",
    "ProviderError",
    "body_bytes",
    "classify_error",
    "connect_budget",
    "default_close",
    "default_connect",
    "default_read",
    "default_send",
    "default_send_body",
    "default_send_headers",
    "define_provider",
    "resolve_timeout",
    "sanitize_request",
]
