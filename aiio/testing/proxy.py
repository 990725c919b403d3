"""A proxy on loopback that breaks connections at an exact byte; see faults.py for how.

    async with fault_proxy(server, env=env) as proxy:
        proxy.play(stall(after=400))                         # every connection
        proxy.play_next(reset(after=0))                      # before that, one connection
        agent = Agent(env=env, model=proxy.model("chat"))

It passes TCP streams and knows nothing of what is in them; TLS passes too. Each direction of a connection
is a reader, which notes when bytes came, and a deliverer, which does to them what the faults say. A pair of
streams ends when both directions have ended, or as soon as one of them can't be served any more.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, assert_never
from urllib.parse import urlsplit

import trio

from .faults import Direction, Fault, FaultKind
from .loopback import GONE, abort, listening
from .peers import Peer
from .playbook import Playbook

if TYPE_CHECKING:
    from aiio.env.env import Env

_READ = 64 << 10
_AHEAD = 64  # reads that wait for a slow deliverer, before TCP's own backpressure begins
_SLICES = 20  # writes a second of a throttled stream


class FaultProxy(Peer):
    """The running proxy; see the module's docstring. Made by `fault_proxy`."""

    def __init__(self, name: str, host: str, port: int) -> None:
        super().__init__(name)
        self._target = (host, port)
        self._faults: Playbook[tuple[Fault, ...]] = Playbook(())

    def play(self, *faults: Fault) -> None:
        """Do *faults* to every connection from now on, none without any; what was queued is dropped.

        `refuse()` closes the port; the next call without it opens it again. OSError: it is taken by now.
        """
        self._faults.set(faults)
        if any(fault.kind is FaultKind.REFUSE for fault in faults):
            self.loopback.refuse()
        else:
            self.loopback.accept()

    def play_next(self, *faults: Fault) -> None:
        """Do *faults* to one connection, after those queued before. ValueError: `refuse()` is for all."""
        if any(fault.kind is FaultKind.REFUSE for fault in faults):
            raise ValueError("refuse() closes the port: it can't be for one connection, use play()")
        self._faults.queue(faults)

    async def handle(self, client: trio.SocketStream) -> None:
        """Serve one connection. OSError: the target can't be reached; the client gets a RST.

        Cancellation: both sides are closed.
        """
        faults = self._faults.take()
        try:
            server = await trio.open_tcp_stream(*self._target)
        except OSError:
            abort(client)
            raise
        try:
            await _Link(client, server, faults).run()
        finally:
            server.socket.close()


class _Link:
    """A client's stream and the one to the server."""

    def __init__(self, client: trio.SocketStream, server: trio.SocketStream, faults: Sequence[Fault]) -> None:
        up = [fault for fault in faults if fault.direction == "up"]
        down = [fault for fault in faults if fault.direction == "down"]
        self._up = _Pipe(self, "up", client, server, up)
        self._down = _Pipe(self, "down", server, client, down)
        self._scope = trio.CancelScope()

    def other(self, direction: Direction) -> _Pipe:
        """Return the pipe in the other direction."""
        return self._down if direction == "up" else self._up

    async def run(self) -> None:
        """Pass bytes until the link has ended. The caller closes the streams."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                for pipe in (self._up, self._down):
                    nursery.start_soon(pipe.read)
                    nursery.start_soon(pipe.deliver)

    def end(self) -> None:
        """End both directions."""
        self._scope.cancel()


class _Pipe:
    """One direction of a link."""

    def __init__(
        self,
        link: _Link,
        direction: Direction,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        faults: Sequence[Fault],
    ) -> None:
        self._link, self._direction = link, direction
        self._source, self._sink = source, sink
        self._faults = sorted(faults, key=lambda fault: fault.after)
        self._put, self._take = trio.open_memory_channel[tuple[float, bytes]](_AHEAD)
        self._passed = 0
        self._latency, self._rate, self._late_end = 0.0, math.inf, 0.0
        self._source_broke = False
        self._deaf = False  # after a half close
        self.source_ended = trio.Event()
        """The sender closed its side, or all of it."""

    async def read(self) -> None:
        """Take what comes, and when."""
        async with self._put:
            try:
                while data := await self._source.receive_some(_READ):
                    await self._put.send((trio.current_time(), bytes(data)))
            except GONE:
                self._source_broke = True
            self.source_ended.set()
            ended_at = trio.current_time()
            await self._put.send((ended_at, b""))

    async def deliver(self) -> None:
        """Pass it on, as the faults have it."""
        try:
            await self._meet_faults()
            async for came_at, data in self._take:
                await trio.sleep_until(came_at + self._latency)
                if data:
                    await self._pass(data)
                else:
                    await self._end()
        except GONE:  # the receiver went away: nothing can pass any more
            self._link.end()

    async def _pass(self, data: bytes) -> None:
        while data and not self._deaf:
            size = min(len(data), self._until_fault())
            if self._rate < math.inf:
                size = min(size, max(1, int(self._rate / _SLICES)))
            await self._sink.send_all(data[:size])
            self._passed += size
            data = data[size:]
            if self._rate < math.inf:
                await trio.sleep(size / self._rate)
            await self._meet_faults()

    async def _end(self) -> None:
        await trio.sleep(self._late_end)
        if self._source_broke:
            self._reset()
        elif not self._deaf:
            await self._sink.send_eof()

    def _until_fault(self) -> int:
        return self._faults[0].after - self._passed if self._faults else _READ

    async def _meet_faults(self) -> None:
        """Do what is due at this byte."""
        while self._faults and self._faults[0].after <= self._passed:
            await self._meet(self._faults.pop(0))

    async def _meet(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.LATENCY:
                self._latency = fault.seconds
            case FaultKind.THROTTLE:
                self._rate = fault.rate
            case FaultKind.SLOW_CLOSE:
                self._late_end = fault.seconds
            case FaultKind.STALL:
                await self._stall(fault.seconds)
            case FaultKind.RESET | FaultKind.REFUSE:  # of a connection that came just before
                self._reset()
                await trio.lowlevel.checkpoint()  # which ends this task
            case FaultKind.EOF:
                self._link.end()
                await trio.lowlevel.checkpoint()
            case FaultKind.HALF_CLOSE:
                self._deaf = True
                await self._sink.send_eof()
            case _:
                assert_never(fault.kind)

    async def _stall(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._link.other(self._direction).source_ended.wait()
            self._link.end()  # the receiver left: nobody is there to stall
            await trio.lowlevel.checkpoint()

    def _reset(self) -> None:
        abort(self._sink)
        self._link.end()


@asynccontextmanager
async def fault_proxy(
    target: Peer | str, *faults: Fault, env: Env | None = None, name: str = "faulty", port: int = 0
) -> AsyncIterator[FaultProxy]:
    """Run a proxy in front of *target* for the length of the block.

    Args:
      target: a `MockServer`, or a URL of which host and port count.
      faults: what is done to every connection, until told otherwise.
      env: where its endpoints are registered, one a dialect, for `proxy.model(dialect)`.
      name: what those endpoints' names begin with.
      port: on 127.0.0.1; 0: any that is free.

    Raises what the block raises, never a group. ValueError: not a URL. OSError: the port is taken.
    Cancellation, as any end of the block, closes the port and all connections.
    """
    url = urlsplit(target.url if isinstance(target, Peer) else target)
    if not url.hostname:
        raise ValueError(f"not a URL with a host: {target!r}")
    to = url.port or (443 if url.scheme == "https" else 80)
    proxy = FaultProxy(name, url.hostname, to)
    async with listening(proxy.handle, port) as loopback:
        proxy.attach(loopback)
        proxy.play(*faults)
        if env is not None:
            proxy.register(env)
        yield proxy
