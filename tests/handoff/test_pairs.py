"""A conversation begun on one dialect goes on at another: for every ordered pair, whatever was in it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.providers.dialects import DIALECTS, Dialect
from tests.providers.fakes import FakeIO
from tests.providers.manifest import replay
from tests.providers.wires import SIGNATURE, wire

from .contexts import ANSWER, PAIRS, SERVER_SIDE, after, all_blocks, every_context

pairs = pytest.mark.parametrize(
    ("maker", "taker"), PAIRS, ids=[f"{maker.name}-to-{taker.name}" for maker, taker in PAIRS]
)
each = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)


@pairs
def test_every_context_of_the_one_is_a_request_that_the_other_takes(maker: Dialect, taker: Dialect) -> None:
    for name, context in every_context(maker):
        before = copy.deepcopy(context)
        try:
            taker.body(context)
        except AssertionError as exc:
            raise AssertionError(f"{name}: {exc}") from exc
        assert context == before, name


@pairs
def test_no_words_are_lost_and_no_call_is(maker: Dialect, taker: Dialect) -> None:
    sent = json.dumps(taker.body(all_blocks(maker)), ensure_ascii=False)
    for words in (
        "Be brief.",
        "What is this?",
        "Let me see.",
        "I'll look at both.",
        "blue",
        "no sea",
        "Thanks.",
    ):
        assert words in sent, words
    for call in ("look", "sky", "sea"):
        assert call in sent
    for block in SERVER_SIDE[maker.name]:
        if block["type"] == "text":
            assert block["text"] in sent
    assert "Half of what was filtered" not in sent
    assert "next year" not in sent


@pairs
def test_thinking_and_its_secrets_go_to_their_maker_only(maker: Dialect, taker: Dialect) -> None:
    """Signatures and ciphertext of one service are refused by every other, and mean nothing to it."""
    content = replay(maker.provider(), b"".join(wire(maker.name, ANSWER)), framer=maker.framer).content
    body = taker.body(after(content))
    kept = SIGNATURE in json.dumps(content)
    assert (SIGNATURE in json.dumps(body)) == (kept and maker is taker)
    assert maker is taker or "The sky first" not in json.dumps(body)


@pairs
def test_what_is_left_out_is_reported(maker: Dialect, taker: Dialect) -> None:
    if maker is taker:
        return
    for block in SERVER_SIDE[maker.name]:
        if block["type"] == "server":
            io = FakeIO(model=taker.model)
            context = after([{"type": "text", "text": "Hi."}, block, {"type": "text", "text": "Yes."}])
            assert "item" not in json.dumps(taker.body(context, io))
            assert io.repair_names == ["block_dropped"]


@each
def test_a_turn_of_nothing_but_thinking_is_sent_by_no_dialect_that_refuses_it(dialect: Dialect) -> None:
    """Cut right after its thinking, an answer has nothing to say; the turns around it still go out."""
    kept: list[dict[str, Any]] = [
        {"type": "thinking", "text": "hm"},
        {"type": "thinking", "text": "", "signature": "s"},
        {"type": "thinking", "text": "", "redacted": True, "data": "d"},
        {"type": "thinking", "text": "", "id": "rs", "summary": [], "encrypted_content": "e"},
        {"type": "thinking", "text": "hm", "ollama": True},
    ]
    for block in kept:
        sent = json.dumps(dialect.body(after([block])))
        assert '"u"' in sent or "u\\n\\nv" in sent
        assert "hm" not in sent
