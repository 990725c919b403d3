"""`Pump`: what an async iterable yields in trio, to be fetched from outside in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import Any, Generic, TypeVar

import trio

T = TypeVar("T")

AHEAD = 64
"""Items fetched ahead of the consumer: crossing to another loop costs as much as many items."""


class Pump(Generic[T]):
    """Two async functions for trio's side, `feed` in a task of its own, and `items` for the other one.

    Args:
      fn: returns an async iterable, or a context manager that gives one when it is entered.
      args: its arguments.
    """

    def __init__(
        self,
        fn: Callable[..., AsyncIterable[T] | AbstractAsyncContextManager[AsyncIterable[T]]],
        args: tuple[Any, ...],
    ) -> None:
        self._fn = fn
        self._args = args
        self._send, self._receive = trio.open_memory_channel[T](AHEAD)
        self.items: deque[T] = deque()
        """What `fetch` brought. Not touched by it while its caller is between two calls."""

    async def feed(self) -> None:
        """Iterate to the end. Raises what the iterable raises, and TypeError when it is none.

        Cancellation: the iterable is closed, or left if it was entered.
        """
        with self._send:
            source = self._fn(*self._args)
            if isinstance(source, AbstractAsyncContextManager):
                async with source as items:
                    await self._forward(items)
            elif isinstance(source, AsyncGenerator):
                async with aclosing(source):
                    await self._forward(source)
            else:
                await self._forward(source)

    async def _forward(self, items: AsyncIterable[T]) -> None:
        async for item in items:
            await self._send.send(item)

    async def fetch(self) -> bool:
        """Wait for an item, put it and all that are there into `items`; False: there are no more.

        Cancellation: nothing is lost.
        """
        try:
            self.items.append(await self._receive.receive())
        except trio.EndOfChannel:
            return False
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while True:
                self.items.append(self._receive.receive_nowait())
        return True
