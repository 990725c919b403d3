"""One request at a time: `IO`, its limits, and what provider authors need beside it (seed 004)."""

from __future__ import annotations

from aiio import context as Context
from aiio.env.env import Env
from aiio.env.errors import ErrorKind, HttpStatusError, ProviderError, classify_error
from aiio.providers.base import define_provider

from .io import IO
from .limits import connect_budget, resolve_timeout
from .sanitize import body_bytes, sanitize_request
from .state import IOState
from .stream import EventStream

__all__ = [
    "IO",
    "Context",
    "Env",
    "ErrorKind",
    "EventStream",
    "HttpStatusError",
    "IOState",
    "ProviderError",
    "body_bytes",
    "classify_error",
    "connect_budget",
    "define_provider",
    "resolve_timeout",
    "sanitize_request",
]
