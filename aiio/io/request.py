"""One request, from admission to its terminal event.

    admit                     a FIFO slot in the ledger; no limit runs yet, but kill() has a scope
    nursery                   what runs beside the reading; nothing raises out of it
      its scope               from admission to the last byte: the overall limit, and kill()
        scope connect         to the response head: base + 1 ms a body byte
        scope stuck           while reading: as long as no message data comes
    settle                    cause -> terminal event, by the table in state.py

Scopes only *stop* things. Why the request ended is a `Cause`, noted once: by whoever stops it at the
moment of stopping, and by whatever is found in the stream. The first note wins, so that a limit that
fires while a killed request cleans up, or the other way round, does not rewrite history.

Inside the nursery nothing raises but cancellation; faults and the caller's own exceptions are noted
and dealt with after it is closed, which is why callers never see an ExceptionGroup.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import trio

from aiio.context.events import Done, Start, Terminal
from aiio.context.log import get_logger
from aiio.env.errors import ErrorKind, HttpStatusError, ProviderError, classify_error
from aiio.env.groups import leaves
from aiio.transports.base import Connection, Duplex, Reuse, Transport, TransportRequest

from .answer import Answer, CallbackFailed, plugin_fault
from .limits import Limits, connect_budget
from .sanitize import encode_body, split_request, transport_request
from .settle import Ending, settle
from .state import Cause, Step
from .trace import WriteTrace

if TYPE_CHECKING:
    from aiio.env.env import Address
    from aiio.providers.base import Provider

    from .io import IO

LATE_USAGE = 1.0
"""Seconds granted after the last piece of the answer for a usage frame that comes late."""

CLEANUP = 5.0
"""Seconds that closing a connection may take, shielded from cancellation."""

_NOT_ENDED = Ending()


class Request:
    """One request of one IO. Made, run once, and done with.

    Args:
      io: the IO it belongs to; it is reserved for this request.
      model: bare model id.
      answer: what is sent, and who hears the answer.
      limits: as resolved for this request.
      after_batch: awaited after each read whose events were dispatched (`stream()` hands them over here).
    """

    def __init__(
        self,
        io: IO,
        model: str,
        answer: Answer,
        limits: Limits,
        after_batch: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._io = io
        self._answer = answer
        self._limits = limits
        self._after_batch = after_batch
        self._provider_class = io.provider_class
        self._ending = _NOT_ENDED
        self._trace = WriteTrace(
            endpoint=io.endpoint_name,
            model=model,
            overall_budget=limits.overall,
            stuck_budget=limits.stuck,
        )
        self.token: str | None = None
        """The credential of the running attempt."""
        self.settings: Mapping[str, Any] | None = None
        """Those of the endpoint, while the provider's hooks make the request; None: read them live."""
        self.scope: trio.CancelScope = trio.CancelScope()
        """What `kill()` cancels: the wait for a slot, then all that runs, up to the overall limit."""
        self._connect: trio.CancelScope | None = None
        self._reading = False
        self._pings_count = False
        self._cancelled: trio.Cancelled | None = None
        """What ended the attempt; if a scope of the caller's did, it goes on when the request has settled."""
        self.settled: bool = False
        """The write has its terminal event, and nothing of it runs any more."""
        self._waited_for: trio.Event | None = None  # once somebody waits for that; few do

    # -- stopping ---------------------------------------------------------------------------------

    def stop(self, cause: Cause, reason: str | None = None) -> None:
        """Stop from outside, now, in whatever phase. Sync, from any task or a callback of this request."""
        self._note(self._expired() or cause, reason)
        self.scope.cancel(reason or str(cause))

    def _note(self, cause: Cause, reason: str | None = None, **found: Any) -> None:
        """Note why the request ends, unless something else was first."""
        if self._ending.cause is not None:
            return
        budget = self._budget(cause)
        silence = 0.0 if budget is None else self._trace.silence(trio.current_time())
        self._ending = Ending(cause=cause, reason=reason, silence=silence, budget=budget, **found)
        self._answer.over = True

    def _over(self) -> bool:
        """Tell whether the request has come to its end, one way or another."""
        if self._answer.terminal is not None:
            self._note(Cause.ANSWERED)
        return self._ending.cause is not None

    def _budget(self, cause: Cause) -> float | None:
        match cause:
            case Cause.OVERALL:
                return self._limits.overall
            case Cause.CONNECT:
                return self._trace.connect_budget
            case Cause.STUCK:
                return self._limits.stuck
            case _:
                return None

    def _expired(self) -> Cause | None:
        """Return the limit whose time has come first, if one has. On a tie the wider one."""
        due, cause = self.scope.deadline, Cause.OVERALL
        if self._connect is not None and self._connect.deadline < due:
            due, cause = self._connect.deadline, Cause.CONNECT
        if self._reading and (stuck_at := self._stuck_at()) < due:
            due, cause = stuck_at, Cause.STUCK
        return cause if due <= trio.current_time() else None

    def _stuck_at(self) -> float:
        assert self._trace.progress_at is not None  # set with the response head, before reading begins
        return self._trace.progress_at + self._limits.stuck

    async def wait_settled(self) -> None:
        """Wait until the request has `settled`. Cancellation: only the wait ends. Always a checkpoint."""
        if self._waited_for is None:
            self._waited_for = trio.Event()
        if self.settled:
            self._waited_for.set()
        await self._waited_for.wait()

    # -- running ----------------------------------------------------------------------------------

    async def run(self) -> Terminal:
        """Run to the terminal event; see `IO.write` for what it returns and raises."""
        interrupted: BaseException | None = None
        try:
            await self._admitted()
        except BaseException as exc:  # noqa: BLE001  # only cancellation, and crashes of a transport's tasks
            interrupted = self._interruption(exc)
        if self._cancelled is not None and interrupted is None:
            interrupted = await self._of_the_caller(self._cancelled)
        self._cancelled = None
        if self._ending is _NOT_ENDED:  # it was ended by a scope: a limit of ours, or somebody else's
            self._note(self._expired() or Cause.OUTER)
        try:
            terminal = self._settle()
        finally:
            self.settled = True
            if self._waited_for is not None:
                self._waited_for.set()
        try:
            if interrupted is not None:
                raise interrupted
            return terminal
        finally:
            del interrupted  # its traceback holds this frame: a circle, with all that the request holds in it

    async def _admitted(self) -> None:
        """Hold a slot of the ledger, and be in flight. Raises only cancellation, or groups."""
        io, ledger = self._io, self._io.env.ledger
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            ledger.acquire_nowait(io)
        except trio.WouldBlock:
            with self.scope:
                await ledger.acquire(io)
            if self.scope.cancelled_caught:
                return
        try:
            if self._over():  # it was killed before it got its slot, or as it got it
                return
            now = self._trace.admitted_at = trio.current_time()
            async with trio.open_nursery() as nursery:
                self.scope = nursery.cancel_scope
                self.scope.deadline = now + self._limits.overall
                io.env.emit("io_start", io=io, context=self._answer.context, url=io._url)
                await self._attempts(nursery)
                if nursery.child_tasks:
                    self.scope.cancel()
        finally:
            ledger.release(io)

    def _interruption(self, exc: BaseException) -> BaseException | None:
        """Note what left the nursery; return what of it must go on to the caller."""
        found = leaves(exc)
        urgent = [leaf for leaf in found if not isinstance(leaf, Exception | trio.Cancelled)]
        faults = [leaf for leaf in found if isinstance(leaf, Exception)]
        if urgent:
            self._note(Cause.OUTER)
            return urgent[0]
        if faults:  # a bug of the transport, reported like any other plug-in's
            self._note(Cause.FAULT, fault=plugin_fault("transport", faults[0]))
        return next((leaf for leaf in found if isinstance(leaf, trio.Cancelled)), None)

    async def _of_the_caller(self, cancelled: trio.Cancelled) -> BaseException | None:
        """Return what goes on to the caller of an attempt that was *cancelled*; None: a scope of ours was."""
        if self._ending.cause is Cause.OUTER:
            return cancelled
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
        except BaseException as exc:  # noqa: BLE001  # raised when the request has settled
            return exc
        return None

    async def _attempts(self, nursery: trio.Nursery) -> None:
        """Make the request, and once more if a refused credential has changed meanwhile."""
        fault = await self._attempt(nursery)
        refused = fault is not None and fault.kind is ErrorKind.AUTH and not self._answer.emitted
        if refused and not self._over() and await self._credential_changed():
            get_logger().info("request.resend", endpoint=self._io.endpoint_name, why="credential changed")
            self._io._move(Step.RESEND)
            fault = await self._attempt(nursery)
        if fault is not None and (other := self._fallback(fault)) is not None and not self._over():
            get_logger().info(
                "request.fallback", endpoint=self._io.endpoint_name, provider=other.name, why=fault.message
            )
            self._provider_class = other
            self._io._move(Step.RESEND)
            fault = await self._attempt(nursery)
        if fault is not None:
            self._note(Cause.FAULT, fault=fault)

    def _fallback(self, fault: ProviderError) -> type[Provider] | None:
        provider = self._answer.provider
        return None if provider is None or self._answer.emitted else provider.fallback(fault)

    async def _credential_changed(self) -> bool:
        io, used = self._io, self.token
        try:
            await io.env.refresh_credentials(io.endpoint_name)
            await self._resolve()
        except ProviderError:
            return False  # there is none any more: the refusal is what the caller should hear of
        return self.token != used

    async def _attempt(self, nursery: trio.Nursery) -> ProviderError | None:
        """Make the request once: note its end, or return the fault that ended it. `run` raises Cancelled."""
        self._trace.attempts += 1
        connection: Connection | None = None
        try:
            self._io._context_usage.reset()
            self._answer.dispatch(Start())
            connection = await self._open(await self._prepare(), nursery)  # whose body is not kept any longer
            if connection is not None:
                await self._read(connection)
        except (HttpStatusError, ProviderError) as exc:
            return self._classified(exc)
        except CallbackFailed as exc:
            self._note(Cause.CRASH, type(exc.crash).__name__, crash=exc.crash)
        except trio.Cancelled as exc:
            # A task of the transport that crashed cancels the nursery, too; `_interruption` reports it.
            crashed = nursery.cancel_scope.cancel_called
            found = self._ending.cause or self._expired() or (None if crashed else Cause.OUTER)
            if found is not None:
                self._note(found)
            # Kept: of what is raised here, the nursery would make a group. But not with the frames it came
            # through: they would live as long, often until the last task of the caller has ended.
            self._cancelled = exc.with_traceback(None)
        finally:
            self._connect = None
            self._reading = False
            if connection is not None:
                self._count(connection)
                if self._trace.reuse is not None:
                    done = isinstance(self._answer.terminal, Done)
                    self._trace.reuse.whole = done and self._ending.cause is Cause.ANSWERED
                if getattr(connection, "closes_at_once", False):
                    await connection.aclose()
                else:
                    with trio.move_on_after(CLEANUP, shield=True):
                        await connection.aclose()
        return None

    async def _resolve(self) -> Address:
        """Return where the request goes, with the credential to use put in place."""
        io = self._io
        address = await io.env.resolve(io.endpoint_name, io._overrides)
        self.token = None if address.credential is None else address.credential.reveal()
        return address

    async def _prepare(self) -> TransportRequest:
        """Return the request, ready for the wire."""
        io, answer = self._io, self._answer
        address = await self._resolve()
        io.env.refresh_tool_availability()
        cls = self._provider_class
        hook = "constructor"
        self.settings = address.settings
        try:
            provider = cls(io._url or address.url, io)
            hook = "request"
            headers, body = split_request(provider.request(answer.context, io))
            hook = "new_state"
            answer.begin(provider, provider.new_state())
            hook = "url"
            target: Any = provider.url
            if not isinstance(target, str):
                raise TypeError(f"not a string: {type(target).__name__}")
        except ProviderError:
            raise
        except Exception as exc:  # a plug-in's bug ends its own write, and harms no other
            raise plugin_fault(f"provider {cls.name!r}: {hook}", exc) from exc
        finally:
            self.settings = None
        encoded = encode_body(body)
        self._trace.body_bytes = len(encoded or b"")
        settings = address.settings
        self._pings_count = bool(settings.get("pings_are_progress"))
        self._trace.reuse = Reuse(redo=self._redone) if settings.get("http_keep") is True else None
        return transport_request(
            io.env,
            settings,
            url=target,
            headers=headers,
            body=encoded,
            framing=provider.framing,
            reuse=self._trace.reuse,
            slot=io._slot if settings.get("ws_keep") is True else None,
            head_came=self._head_came,
        )

    def _redone(self, fault: ProviderError) -> None:
        """The peer had given up a kept connection: the request goes out once more, within the same limits."""
        self._trace.redone += 1
        get_logger().info("request.redone", endpoint=self._io.endpoint_name, why=fault.message)

    async def _open(self, request: TransportRequest, nursery: trio.Nursery) -> Connection | None:
        """Return the connection once its head is there; None when the connect budget ran out first."""
        budget = connect_budget(self._limits.connect * 1000, self._trace.body_bytes) / 1000
        self._trace.connect_budget = budget
        self._trace.sent_at = now = trio.current_time()
        transport: Transport = self._io.env.transport(request.url)
        with trio.CancelScope(deadline=now + budget) as self._connect:
            connection = await transport.open(request, nursery)
        if self._connect.cancelled_caught:
            self._note(Cause.CONNECT)
            return None
        self._connect = None
        self._trace.head_at = self._trace.progress_at = trio.current_time()
        self._answer.headers = connection.headers
        self._io._move(Step.HEAD)
        self._report_plan_usage(connection)
        return connection

    def _head_came(self) -> None:
        """The connect budget has done its work, also when the rest of a refusal is slow to come."""
        assert self._connect is not None  # called from within `open`
        self._connect.deadline = math.inf

    def _report_plan_usage(self, connection: Connection) -> None:
        provider = self._answer.provider
        assert provider is not None  # it made the request
        try:
            provider.report_plan_usage(connection.headers, self._io)
        except Exception as exc:  # noqa: BLE001  # a readout is a courtesy: it never decides about the answer
            get_logger().warning(
                "plan_usage.failed", endpoint=self._io.endpoint_name, error=type(exc).__name__
            )

    # -- reading ----------------------------------------------------------------------------------

    async def _read(self, connection: Connection) -> None:
        """Read to the end of the answer. Raises what `receive` raises, and `CallbackFailed`."""
        self._reading = True
        complete = False
        while not complete and not self._over():
            # The scope is not re-armed for every read. When it fires although data came since, the read it
            # interrupted has lost nothing (`receive` promises that) and goes on under a new scope.
            with trio.CancelScope(deadline=self._stuck_at()) as stuck:
                complete = await self._read_on(connection, stuck)
            if stuck.cancelled_caught and self._stuck_at() <= trio.current_time():
                self._count(connection)
                self._note(Cause.STUCK)
        if not self._over():
            self._reading = False
            await self._read_late(connection)

    async def _read_on(self, connection: Connection, stuck: trio.CancelScope) -> bool:
        """Read until the answer is complete, and return True, or until something ended it."""
        trace, answer, receive = self._trace, self._answer, connection.receive
        now = trio.lowlevel.current_clock().current_time
        while (frames := await receive()) is not None:
            trace.frames += len(frames)
            if answer.take(frames) or (self._pings_count and self._pinged(connection, frames)):
                trace.progressed(now())
                if self._after_batch is not None and not self._over():
                    await self._hand_over(self._after_batch, stuck)
            if answer.over:
                self._over()
                return False
            if answer.outbox:
                stuck.deadline = self._stuck_at()  # a send that is interrupted is lost, unlike a read
                await self._send(connection)
            if answer.complete():
                return True
            del frames  # or they would be kept while the next ones are waited for
        answer.finish()
        return False

    async def _send(self, connection: Connection) -> None:
        """Send what the provider wants said next. ProviderError: the connection takes no more messages."""
        messages, self._answer.outbox = self._answer.outbox, []
        if not isinstance(connection, Duplex):
            raise plugin_fault("provider", TypeError("Send needs a WebSocket"))
        for message in messages:
            await connection.send(message)

    async def _hand_over(self, after_batch: Callable[[], Awaitable[None]], stuck: trio.CancelScope) -> None:
        """Wait for the consumer of `stream()`. Its time does not count as the provider's silence."""
        self._reading, stuck.deadline = False, math.inf
        await after_batch()
        self._trace.progress_at = trio.current_time()
        self._reading, stuck.deadline = True, self._stuck_at()

    def _pinged(self, connection: Connection, frames: list[bytes]) -> bool:
        before, self._answer.keepalives = self._answer.keepalives, connection.keepalives
        return bool(frames) or connection.keepalives > before

    async def _read_late(self, connection: Connection) -> None:
        """The answer is complete: take what usage still comes, for a moment, whatever else the peer does."""
        answer = self._answer
        self.scope.deadline = math.inf  # the answer came in time
        # The limit may have fired in the pass of trio's loop that brought the last piece: then nothing
        # can be awaited any more.
        if not self.scope.cancel_called:
            with trio.move_on_after(LATE_USAGE):
                try:
                    while not answer.over and (frames := await connection.receive()) is not None:
                        self._trace.frames += len(frames)
                        answer.take(frames)
                except ProviderError as exc:
                    get_logger().info(
                        "request.unclean_end", endpoint=self._io.endpoint_name, error=exc.message
                    )
        if not answer.over:
            answer.finish()
        self._over()

    # -- ending -----------------------------------------------------------------------------------

    def _settle(self) -> Terminal:
        """Make the terminal event, tell everybody, and leave the IO ready or closed.

        Raises what a callback raised, if one did.
        """
        io, answer, trace, crash = self._io, self._answer, self._trace, self._ending.crash
        events, terminal = settle(self._ending, answer, io)
        try:
            if crash is None:
                for event in events:
                    answer.dispatch(event)
            answer.dispatch(terminal)
        except CallbackFailed as exc:
            crash = crash or exc.crash
        io._finished(terminal)
        trace.settled(terminal)
        if trace.admitted_at is not None:
            io.env.emit("io_done", io=io, terminal=terminal, trace=trace)
        if crash is not None:
            raise crash
        return terminal

    def _classified(self, error: HttpStatusError | ProviderError) -> ProviderError:
        provider = self._answer.provider
        if provider is None or isinstance(error, ProviderError):
            return classify_error(error, self._io.endpoint_name)
        try:
            return provider.classify_error(error)
        except Exception as exc:  # noqa: BLE001  # a plug-in that fails to classify must not hide what happened
            get_logger().warning("classify.failed", provider=provider.name, error=type(exc).__name__)
            return classify_error(error, self._io.endpoint_name)

    def _count(self, connection: Connection) -> None:
        self._trace.bytes_received = connection.bytes_received
        self._trace.keepalives = self._answer.keepalives = connection.keepalives
