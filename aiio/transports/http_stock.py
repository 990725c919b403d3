"""The stock path: proxies, and a client that the caller lends, behind the same `receive`.

A task runs the library's own streaming loop and hands chunks over one at a time; so the reader can be
cancelled at any moment without losing a byte, which the library's generators can't.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

import trio

from aiio.env.errors import ErrorKind, ProviderError

from .base import TransportRequest
from .http_errors import Phase, fault, peer_name, scrubbed_url
from .http_headers import lower_cased

if TYPE_CHECKING:
    import httpx

CLOSE_SECONDS = 5.0
"""How long closing may take: the library's own clean-up, which is shielded in it."""
_UNWIND_STEPS = 64


class LentResponse(Protocol):
    """What is used of a streamed response, httpx's or httpx2's."""

    status_code: int

    @property
    def reason_phrase(self) -> str: ...

    @property
    def headers(self) -> Any: ...

    @property
    def content(self) -> bytes: ...

    is_stream_consumed: bool

    def aiter_raw(self) -> AsyncIterator[bytes]: ...


class LentClient(Protocol):
    """The face of `httpx.AsyncClient` that a lent client must have."""

    @property
    def stream(self) -> Callable[..., AbstractAsyncContextManager[Any]]:
        """Called as `stream(method, url, headers=, content=, follow_redirects=, timeout=)`."""
        ...


class StockAnswer:
    """An answer that a task pumps out of an httpx client; see `Answer` in http_connection.py.

    Args:
      client: sends the request. Its own time limits and redirects are turned off for this request.
      owned: close the client with the answer.
    """

    def __init__(self, client: LentClient, request: TransportRequest, peer: str, *, owned: bool) -> None:
        self.status: int = 0
        self.reason: str = ""
        self.headers: Mapping[str, str] = {}
        self.decoded: bool = False
        self.closes_at_once: bool = False
        self.peer = peer
        self.bytes_received: int = 0
        self._client, self._request, self._owned = client, request, owned
        self.fault: ProviderError | None = None
        self._head_came, self._finished = trio.Event(), trio.Event()
        self._scope = trio.CancelScope()
        self._put, self._take = trio.open_memory_channel[bytes](0)

    async def start(self, headers: list[tuple[bytes, bytes]], nursery: trio.Nursery) -> None:
        """Send the request and wait for the head; a task in *nursery* reads the rest.

        Raises:
          ProviderError: there is no head.

        Cancellation: the connection is closed.
        """
        nursery.start_soon(self._pump, headers)
        try:
            await self._head_came.wait()
            if self.fault is not None and not self.status:
                raise self.fault
        except BaseException:
            await self.aclose()
            raise

    async def receive(self) -> bytes | None:
        """Return the next body bytes; None at the end, be it a clean one or a `fault`."""
        try:
            data = await self._take.receive()
        except trio.EndOfChannel:
            return None
        self.bytes_received += len(data)
        return data

    async def aclose(self) -> None:
        """End the task, and with it the connection. Idempotent."""
        self._scope.cancel()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS):
            await self._finished.wait()

    async def _pump(self, headers: list[tuple[bytes, bytes]]) -> None:
        phase: Phase = "connect"
        try:
            with self._scope:
                async with contextlib.AsyncExitStack() as stack:
                    if self._owned:
                        await stack.enter_async_context(self._client)  # type: ignore[arg-type]
                    response = await stack.enter_async_context(self._open(headers))
                    phase = "body"
                    self._take_head(response)
                    await self._hand_over(response)
        except Exception as exc:  # noqa: BLE001  # the lent client is foreign code, and this task never raises
            self.fault = self._classified(exc, phase)
        finally:
            self._put.close()
            self._head_came.set()
            self._finished.set()

    @contextlib.asynccontextmanager
    async def _open(self, headers: list[tuple[bytes, bytes]]) -> AsyncGenerator[LentResponse]:
        request, client = self._request, self._client
        given = {"headers": headers, "content": request.body}
        build = getattr(client, "build_request", None)
        if build is None:
            options = {**given, "follow_redirects": False, "timeout": None}
            async with client.stream(request.method, request.url, **options) as response:
                yield response
            return
        # What `stream` of both libraries does, but for the body: a request that is cancelled while it is
        # being sent would leave their body generator to the garbage collector.
        built = build(request.method, request.url, **given, timeout=None)
        built.stream = _plain_stream(built.stream, request.body or b"")
        response = await client.send(built, stream=True, follow_redirects=False)  # type: ignore[attr-defined]
        try:
            yield response
        finally:
            await response.aclose()

    def _take_head(self, response: LentResponse) -> None:
        self.reason = response.reason_phrase
        self.headers = lower_cased(response.headers.raw)
        self.decoded = response.is_stream_consumed
        self.status = response.status_code
        self._head_came.set()

    async def _hand_over(self, response: LentResponse) -> None:
        if self.decoded:  # a mock transport gives responses that are read already
            await self._put.send(response.content)
            return
        chunks = response.aiter_raw()
        try:
            async for chunk in chunks:
                await self._put.send(chunk)
        finally:
            await _unwind(chunks)

    def _classified(self, error: Exception, phase: Phase) -> ProviderError:
        peer, proxy = self.peer, self._request.proxy
        if proxy is not None and type(error).__name__ == "ConnectError":
            import httpx

            phase, peer = "proxy", f"the proxy {peer_name(httpx.URL(proxy))}"
        return fault(error, phase=phase, peer=peer, bytes_received=self.bytes_received)


def _plain_stream(stream: Any, body: bytes) -> Any:
    """Return a body stream of *stream*'s own library whose iterator is no generator."""

    class PlainStream(type(stream)):  # type: ignore[misc]  # its base is only known here
        def __init__(self) -> None:
            pass

        def __aiter__(self) -> _Once:
            return _Once(body)

    return PlainStream()


class _Once:
    """An asynchronous iterator over one piece of bytes."""

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data or None

    def __aiter__(self) -> _Once:
        return self

    async def __anext__(self) -> bytes:
        data, self._data = self._data, None
        if data is None:
            raise StopAsyncIteration
        return data


async def _unwind(chunks: AsyncIterator[bytes]) -> None:
    """End a chain of generators that may stand at a `yield`, by cancelling it where it awaits.

    Closing the outermost one would leave the inner ones to the garbage collector, which warns.
    """
    with trio.CancelScope() as scope:
        scope.cancel()
        for _ in range(_UNWIND_STEPS):
            if await anext(chunks, None) is None:
                return
    if isinstance(chunks, AsyncGenerator):
        await chunks.aclose()


def proxied_client(proxy: str, context: ssl.SSLContext) -> httpx.AsyncClient:
    """Return a client for one request through *proxy*. ProviderError: not a usable proxy URL."""
    import httpx

    try:
        target = httpx.Proxy(proxy)
        if target.url.scheme == "https":
            target.ssl_context = context
        transport = httpx.AsyncHTTPTransport(
            proxy=target,
            verify=context,
            trust_env=False,
            retries=0,
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=0),
        )
    except (ValueError, httpx.InvalidURL, ImportError) as exc:
        text = f"not a usable proxy: {scrubbed_url(proxy)}"
        raise ProviderError(ErrorKind.MALFORMED, text, phase="proxy") from exc
    return httpx.AsyncClient(transport=transport, trust_env=False, timeout=None)
