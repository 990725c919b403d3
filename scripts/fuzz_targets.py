"""What `scripts/fuzz` fuzzes: a law of tests/fuzz, seeds to begin with, and a way to change them."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

FRAMING = ("sse", "sse-limit", "ndjson", "ndjson-limit", "body", "chunked")
FRAMING_BYTES = 160
"""Bytes of an input for framing: nothing there looks further, and some inputs are cut at every byte."""
LONGEST = 3000
"""Bytes of any other input."""
HANG = 10
"""Seconds that one execution may take."""
MEMORY = 2048
"""MB that a process that fuzzes may take."""

_LAWS = ("answering", "framing_laws", "session_laws", "mutations", "corpus")


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is fuzzed."""

    name: str
    check: Callable[[bytes], None]
    """Raises AssertionError when a law is broken; anything else that it raises is a finding too."""
    seeds: Callable[[], list[bytes]]
    mutate: Callable[[bytes, Random], bytes]
    """Makes another input of one; knows more of what it changes than that it is bytes."""
    longest: int = LONGEST
    short: int = 400
    """Bytes of most inputs: what there is to find is found in short ones too, and they cost little."""


def all_targets() -> dict[str, Target]:
    """Return the targets by name. Imports what they test."""
    answering, framing, session, mutations, corpus = (
        importlib.import_module(f"tests.fuzz.{name}") for name in _LAWS
    )
    checks = {
        "sse": framing.check_sse,
        "sse-limit": framing.check_sse_limit,
        "ndjson": framing.check_ndjson,
        "ndjson-limit": framing.check_ndjson_limit,
        "body": framing.check_whole,
        "chunked": framing.check_chunked,
    }
    targets = [
        *(_framing(name, checks[name], framing, mutations, corpus) for name in FRAMING),
        *(_dialect(name, answering, mutations, corpus) for name in answering.NAMES),
        _session(session, mutations, corpus),
    ]
    return {target.name: target for target in targets}


def groups(targets: dict[str, Target]) -> dict[str, tuple[str, ...]]:
    """Return the names that stand for several targets."""
    return {
        "framing": FRAMING,
        "dialects": tuple(name for name in targets if name not in (*FRAMING, "session")),
    }


def _framing(name: str, check: Any, framing: Any, mutations: Any, corpus: Any) -> Target:
    kind = {"body": "ndjson"}.get(name, name.removesuffix("-limit"))
    tokens = corpus.tokens(kind)

    def mutate(data: bytes, chance: Random) -> bytes:
        changed: bytes = mutations.mutated_bytes(data, tokens, chance)
        return changed

    return Target(
        name=name,
        check=lambda data: check(*framing.split(data)),
        seeds=getattr(corpus, f"{kind}_seeds"),
        mutate=mutate,
        longest=FRAMING_BYTES,
        short=70,
    )


def _dialect(name: str, answering: Any, mutations: Any, corpus: Any) -> Target:
    answering.dialect_class(name)  # imported now: where coverage is looked at, and once for all that fork
    others = [frame for frames in corpus.short_answers(name) for frame in frames]

    def mutate(data: bytes, chance: Random) -> bytes:
        frames = mutations.mutated(data[2:].split(b"\n"), others, chance)
        choices = data[:2].ljust(2, b"\0") if chance.randrange(8) else chance.randbytes(2)
        return choices + b"\n".join(frames)

    return Target(
        name=name,
        check=lambda data: answering.check_bytes(name, data),
        seeds=lambda: corpus.dialect_seeds(name),
        mutate=mutate,
    )


def _session(session: Any, mutations: Any, corpus: Any) -> Target:
    path: list[str] = []
    others = [line for seed in corpus.session_seeds() for line in seed.split(b"\n")]

    def check(data: bytes) -> None:
        if not path:  # in the process that fuzzes; its folder goes with the run's
            path.append(os.path.join(tempfile.mkdtemp(), "session.jsonl"))
        with open(path[0], "wb") as file:
            file.write(data)
        session.check_file(path[0])

    def mutate(data: bytes, chance: Random) -> bytes:
        return b"\n".join(mutations.mutated(data.split(b"\n"), others, chance))

    return Target(name="session", check=check, seeds=corpus.session_seeds, mutate=mutate)
