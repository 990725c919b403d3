"""Dialects: what a context becomes on the wire, and what the answer's frames mean. No I/O.

Each dialect is a module of its own and is imported when first used; `base.py` has the contract.
"""

from aiio.context.events import Send

from .base import (
    Capabilities,
    Events,
    Provider,
    ProviderIO,
    check_provider,
    decode_json,
    define_provider,
    dialect_class,
)

__all__ = [
    "Capabilities",
    "Events",
    "Provider",
    "ProviderIO",
    "Send",
    "check_provider",
    "decode_json",
    "define_provider",
    "dialect_class",
]
