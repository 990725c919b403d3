"""What a request does not keep: a process full of agents waits most of its time."""

from __future__ import annotations

import gc
import sys
import traceback
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import aiio
from aiio.transports.base import TransportRequest

from .scripted import CONTEXT

FRAME = '{"choices":[{"index":0,"delta":{"content":"Half"}}]}'


class Silent:
    """A transport, and its one connection: a frame, and then nothing more."""

    status, bytes_received, keepalives = 200, 0, 0
    headers = {"content-type": "text/event-stream"}

    def __init__(self) -> None:
        self.frame = FRAME.encode()  # bytes that nobody else has
        self.body: bytes | None = None
        self._said = False

    async def open(self, request: TransportRequest, nursery: trio.Nursery) -> Silent:
        self.body = request.body
        return self

    async def receive(self) -> list[bytes] | None:
        await trio.lowlevel.checkpoint()
        if self._said:
            await trio.sleep_forever()
        self._said = True
        return [self.frame]

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def silent() -> AsyncIterator[tuple[aiio.Env, Silent]]:
    async with aiio.open_env(config=False) as env:
        transport = Silent()
        env.register_transport("silent", transport)
        env.register_endpoint("quiet", url="silent://host")
        yield env, transport


async def test_neither_the_body_nor_the_last_frames_are_kept_while_the_next_are_waited_for(
    autojump_clock: MockClock,
) -> None:
    async with silent() as (env, transport), trio.open_nursery() as nursery:
        heard: list[Any] = []
        io = aiio.IO(env=env, model="quiet/m")
        nursery.start_soon(io.write, CONTEXT, {"on_text_delta": heard.append})
        await wait_all_tasks_blocked()
        assert [event.text for event in heard] == ["Half"]
        ours = sys.getrefcount(object())  # the argument itself
        held = [sys.getrefcount(transport.body) - ours, sys.getrefcount(transport.frame) - ours]
        nursery.cancel_scope.cancel()
    assert held == [1, 1]  # by the transport above


@pytest.mark.parametrize("stop", ["cancel", "kill", "limit"])
async def test_a_stopped_write_leaves_nothing_to_the_collector(stop: str, autojump_clock: MockClock) -> None:
    async with silent() as (env, _):
        io = aiio.IO(env=env, model="quiet/m")
        gone = weakref.ref(io)
        gc.disable()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(io.write, CONTEXT, timeout="1s" if stop == "limit" else "9s"))
                await trio.sleep(0.5)
                if stop == "kill":
                    await io.kill()
                if stop == "cancel":
                    nursery.cancel_scope.cancel()
            del io, nursery
            assert gone() is None
        finally:
            gc.enable()


async def test_the_exception_that_cancels_a_write_does_not_keep_what_it_ran_in(
    autojump_clock: MockClock,
) -> None:
    async with silent() as (env, transport):
        with trio.move_on_after(1) as scope:
            try:
                await aiio.IO(env=env, model="quiet/m").write(CONTEXT)
            except trio.Cancelled as exc:
                frames = [frame for frame, _ in traceback.walk_tb(exc.__traceback__)]
                raise
        assert scope.cancelled_caught
        assert not any(frame.f_code is Silent.receive.__code__ for frame in frames)
        del frames
        assert sys.getrefcount(transport.frame) - sys.getrefcount(object()) == 1
