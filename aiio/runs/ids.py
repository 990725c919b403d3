"""Ids that sort by the time they were made."""

from __future__ import annotations

import os
import time
import uuid


def new_id() -> str:
    """Return a fresh UUIDv7 as text: 48 bits of wall-clock milliseconds, then random bits (RFC 9562)."""
    stamp = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    value = (stamp & (1 << 48) - 1) << 80 | random
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))
