"""`from_asyncio`: one runtime, two loops, and cancellation that crosses both ways."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
import sniffio
import trio

from aiio.agents import Agent
from aiio.bridges import from_asyncio
from aiio.bridges.asyncio_bridge import AsyncioBridge
from aiio.context.events import Done, Error, TextDelta
from aiio.context.types import user_message
from aiio.io import IO
from tests.serving import chunk, head, last_chunk

from .talking import MODEL, answer, frame, half, talking, threads

QUESTION = [user_message("Name three birds.")]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = threads()
    yield
    assert threads() == before


async def sleep_until_cancelled(started: Any) -> None:
    started()
    await trio.sleep_forever()


def soon(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> Any:
    """Return a function that sets *event* from another thread."""
    return lambda *_: loop.call_soon_threadsafe(event.set)


# -- run -----------------------------------------------------------------------------------------------


def test_an_asyncio_program_writes() -> None:
    said: list[str] = []

    async def main() -> None:
        async with from_asyncio() as bridge:
            env, _ = await bridge.enter(talking(*answer("Wren, ", "robin.")))
            io = IO(env=env, model=MODEL)
            callbacks = {"on_text_delta": lambda event: said.append(event.text)}
            terminals = await asyncio.gather(
                bridge.run(io.write, QUESTION, callbacks),
                bridge.run(IO(env=env, model=MODEL).write, QUESTION),
            )
            assert all(isinstance(terminal, Done) for terminal in terminals)

    asyncio.run(main())
    assert said == ["Wren, ", "robin."]


def test_an_asyncio_task_cancelled_in_mid_write_leaves_no_thread_socket_or_task() -> None:
    ended: list[Error] = []

    async def main() -> None:
        loop, began = asyncio.get_running_loop(), asyncio.Event()
        async with from_asyncio() as bridge:
            env, server = await bridge.enter(talking(*half("Wren, ro")))
            io = IO(env=env, model=MODEL)
            callbacks = {"on_text_delta": soon(loop, began), "on_error": ended.append}
            task = asyncio.create_task(bridge.run(io.write, QUESTION, callbacks))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [terminal.cancelled for terminal in ended] == [True]  # before the task is over, not later
            assert (len(env.active_io), io.state) == (0, "idle")
            await bridge.run(server.wait_idle)
            assert server.connections == 1
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert ended[0].message is not None
    assert ended[0].message["content"][0]["text"] == "Wren, ro"


def test_a_timeout_of_asyncio_ends_the_work_in_trio() -> None:
    async def main() -> None:
        async with from_asyncio() as bridge:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await bridge.run(trio.sleep_forever)

    asyncio.run(main())


def test_the_caller_waits_for_clean_up_however_often_it_is_cancelled() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        began, cleaning, cleaned = asyncio.Event(), asyncio.Event(), threading.Event()
        release = threading.Event()

        async def slow_to_go() -> None:
            try:
                await sleep_until_cancelled(soon(loop, began))
            finally:
                soon(loop, cleaning)()
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(release.wait, 10)
                cleaned.set()

        async with from_asyncio() as bridge:
            task = asyncio.create_task(bridge.run(slow_to_go))
            await began.wait()
            task.cancel()
            await cleaning.wait()
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=0)
            assert not done
            release.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert cleaned.is_set()

    asyncio.run(main())


def test_what_the_function_raises_crosses_and_so_do_context_variables() -> None:
    who: ContextVar[str] = ContextVar("who")

    async def fn(error: BaseException | None) -> tuple[str, str]:
        if error is not None:
            raise error
        return who.get(), sniffio.current_async_library()

    async def main() -> None:
        who.set("me")
        async with from_asyncio() as bridge:
            assert await bridge.run(fn, None) == ("me", "trio")
            for error in (LookupError("a bug"), KeyboardInterrupt()):
                with pytest.raises(type(error)) as caught:
                    await bridge.run(fn, error)
                assert caught.value is error

    asyncio.run(main())


def test_a_failure_in_clean_up_comes_instead_of_the_cancellation() -> None:
    async def main() -> None:
        loop, began = asyncio.get_running_loop(), asyncio.Event()

        async def fails() -> None:
            try:
                await sleep_until_cancelled(soon(loop, began))
            finally:
                raise LookupError("a bug")

        async with from_asyncio() as bridge:
            task = asyncio.create_task(bridge.run(fails))
            await began.wait()
            task.cancel()
            with pytest.raises(LookupError):
                await task

    asyncio.run(main())


# -- iterate -------------------------------------------------------------------------------------------


def test_iterate_hands_over_the_events_of_a_stream() -> None:
    async def main() -> None:
        async with from_asyncio() as bridge:
            env, _ = await bridge.enter(talking(*answer("Wren, ", "robin.")))
            io = IO(env=env, model=MODEL)
            events = [event async for event in bridge.iterate(io.stream, QUESTION)]
            assert [event.text for event in events if isinstance(event, TextDelta)] == ["Wren, ", "robin."]
            assert isinstance(events[-1], Done)

    asyncio.run(main())


async def counting(count: int, ended: list[str] | None = None) -> AsyncIterator[int]:
    try:
        for number in range(count):
            yield number
            await trio.lowlevel.checkpoint()
        if ended is None:
            raise LookupError("no more numbers")
    finally:
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
        if ended is not None:
            ended.append("ended")


class Three:
    """An async iterator that can't be closed."""

    def __init__(self) -> None:
        self._left = 3

    def __aiter__(self) -> Three:
        return self

    async def __anext__(self) -> int:
        await trio.lowlevel.checkpoint()
        self._left -= 1
        if self._left < 0:
            raise StopAsyncIteration
        return self._left


def test_iterate_takes_generators_and_iterators_and_raises_what_they_raise() -> None:
    async def main() -> None:
        ended: list[str] = []
        async with from_asyncio() as bridge:
            assert [n async for n in bridge.iterate(counting, 200, ended)] == list(range(200))
            assert ended == ["ended"]
            assert [n async for n in bridge.iterate(Three)] == [2, 1, 0]
            numbers: list[int] = []
            with pytest.raises(LookupError, match="no more numbers"):
                async for number in bridge.iterate(counting, 3):
                    numbers.append(number)
            assert numbers == [0, 1, 2]
            with pytest.raises(TypeError):
                async for _ in bridge.iterate(lambda: 3):  # type: ignore[arg-type,return-value]
                    pass

    asyncio.run(main())


def test_who_leaves_an_iteration_early_leaves_nothing_behind() -> None:
    async def main() -> None:
        ended: list[str] = []
        kept: list[AsyncIterator[int]] = []

        async def endless() -> AsyncIterator[int]:
            try:
                for number in range(10**6):
                    yield number  # no checkpoint of its own: what is cancelled is the handing over
            finally:
                ended.append("ended")

        def counted() -> AsyncIterator[int]:
            kept.append(endless())
            return kept[0]  # that we hold it keeps the garbage collector from closing it

        async with from_asyncio() as bridge:
            async with aclosing(bridge.iterate(counted)) as numbers:
                async for number in numbers:
                    if number == 70:
                        break
            assert ended == ["ended"]
            env, server = await bridge.enter(talking(*half("Wren, ro")))
            io = IO(env=env, model=MODEL)
            async for event in bridge.iterate(io.stream, QUESTION):  # closed by asyncio, soon
                if isinstance(event, TextDelta):
                    break
            await bridge.run(server.wait_idle)
            assert io.state == "idle"

    asyncio.run(main())


def test_a_task_cancelled_while_it_iterates_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with from_asyncio() as bridge:
            env, server = await bridge.enter(talking(*half("Wren, ro")))
            io, began = IO(env=env, model=MODEL), asyncio.Event()

            async def consume() -> None:
                async for event in bridge.iterate(io.stream, QUESTION):
                    if isinstance(event, TextDelta):
                        began.set()

            task = asyncio.create_task(consume())
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (io.state, len(env.active_io)) == ("idle", 0)
            await bridge.run(server.wait_idle)

    asyncio.run(main())


def test_a_failure_while_an_iteration_is_left_is_raised() -> None:
    async def fails_to_close() -> AsyncIterator[int]:
        try:
            yield 1
            await trio.sleep_forever()
        finally:
            raise LookupError("a bug")

    async def main() -> None:
        async with from_asyncio() as bridge:
            with pytest.raises(LookupError):
                async with aclosing(bridge.iterate(fails_to_close)) as numbers:
                    async for _ in numbers:
                        break

    asyncio.run(main())


# -- enter, and the end --------------------------------------------------------------------------------


@asynccontextmanager
async def noted(name: str, notes: list[str], error: Exception | None = None) -> AsyncIterator[str]:
    notes.append(f"enter {name}")
    try:
        yield name
    finally:
        await trio.lowlevel.checkpoint()
        notes.append(f"leave {name}")
        if error is not None:
            raise error


def test_what_was_entered_is_left_newest_first_after_what_still_ran() -> None:
    notes: list[str] = []

    async def main() -> None:
        loop, began = asyncio.get_running_loop(), asyncio.Event()

        async def fn() -> None:
            try:
                await sleep_until_cancelled(soon(loop, began))
            finally:
                notes.append("cancelled")

        async with from_asyncio() as bridge:
            assert await bridge.enter(noted("a", notes)) == "a"
            await bridge.enter(noted("b", notes))
            task = asyncio.create_task(bridge.run(fn))
            await began.wait()
        with pytest.raises(trio.ClosedResourceError, match="this bridge is closed"):
            await task
        for late in (bridge.run(trio.lowlevel.checkpoint), bridge.enter(noted("c", notes))):
            with pytest.raises(trio.ClosedResourceError):
                await late
        with pytest.raises(RuntimeError, match="entered once"):
            await bridge.__aenter__()

    asyncio.run(main())
    assert notes == ["enter a", "enter b", "cancelled", "leave b", "leave a"]


def test_what_entering_and_leaving_raise_is_raised() -> None:
    notes: list[str] = []

    class Refuses:
        async def __aenter__(self) -> None:
            raise LookupError("not in")

        async def __aexit__(self, *_: object) -> None:
            notes.append("left what was not entered")

    async def main() -> None:
        bridge = from_asyncio()
        with pytest.raises(OSError, match="not out"):
            async with bridge:
                with pytest.raises(LookupError, match="not in"):
                    await bridge.enter(Refuses())
                await bridge.enter(noted("a", notes))
                await bridge.enter(noted("b", notes, OSError("not out")))

    asyncio.run(main())
    assert notes == ["enter a", "enter b", "leave b", "leave a"]


def test_a_crash_in_what_was_entered_closes_the_bridge() -> None:
    crash, notes = trio.Event(), list[str]()

    @asynccontextmanager
    async def crashing() -> AsyncIterator[None]:
        async def task() -> None:
            await crash.wait()
            raise LookupError("a bug")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(task)
            yield

    @asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        crash.set()
        await trio.Event().wait()
        yield

    async def main() -> None:
        with pytest.raises(LookupError, match="a bug"):
            async with from_asyncio() as bridge:
                await bridge.enter(crashing())
                waiting = asyncio.create_task(bridge.run(trio.sleep_forever))
                entering = [
                    asyncio.create_task(bridge.enter(manager)) for manager in (slow(), noted("a", notes))
                ]
                for task in (*entering, waiting):
                    with pytest.raises(trio.ClosedResourceError):
                        await task
                for late in (bridge.run(trio.sleep_forever), bridge.enter(noted("b", notes))):
                    with pytest.raises(trio.ClosedResourceError):
                        await late

    asyncio.run(main())
    assert notes == []


def test_who_is_cancelled_while_entering_waits_no_more_and_the_bridge_leaves_it() -> None:
    notes: list[str] = []
    inside = trio.Event()

    @asynccontextmanager
    async def slow(began: Any) -> AsyncIterator[None]:
        began()
        await inside.wait()
        notes.append("in")
        try:
            yield
        finally:
            notes.append("out")

    async def main() -> None:
        async with from_asyncio() as bridge:
            began = asyncio.Event()
            task = asyncio.create_task(bridge.enter(slow(soon(asyncio.get_running_loop(), began))))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert notes == []

            async def let_in() -> None:
                inside.set()
                await trio.testing.wait_all_tasks_blocked()

            await bridge.run(let_in)

    asyncio.run(main())
    assert notes == ["in", "out"]


def test_a_cancellation_hurries_the_closing_which_is_waited_for() -> None:
    notes: list[str] = []

    async def main() -> None:
        loop, leaving = asyncio.get_running_loop(), asyncio.Event()

        @asynccontextmanager
        async def slow_to_leave() -> AsyncIterator[None]:
            try:
                yield
            finally:
                loop.call_soon_threadsafe(leaving.set)
                try:
                    await trio.sleep_forever()
                finally:
                    notes.append("left")

        async def program() -> None:
            async with from_asyncio() as bridge:
                await bridge.enter(slow_to_leave())

        task = asyncio.create_task(program())
        await leaving.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert notes == ["left"]


def test_a_cancellation_while_calls_end_hurries_the_closing_too() -> None:
    notes: list[str] = []

    async def main() -> None:
        loop, began, ending = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        release = threading.Event()

        async def slow_to_go() -> None:
            try:
                await sleep_until_cancelled(soon(loop, began))
            finally:
                soon(loop, ending)()
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(release.wait, 10)

        @asynccontextmanager
        async def slow_to_leave() -> AsyncIterator[None]:
            try:
                yield
            finally:
                try:
                    await trio.sleep_forever()
                finally:
                    notes.append("left")

        async def program() -> None:
            async with from_asyncio() as bridge:
                await bridge.enter(slow_to_leave())
                other.append(asyncio.create_task(bridge.run(slow_to_go)))
                await began.wait()

        other: list[asyncio.Task[None]] = []
        task = asyncio.create_task(program())
        await ending.wait()
        task.cancel()
        await asyncio.sleep(0)
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(trio.ClosedResourceError):
            await other[0]

    asyncio.run(main())
    assert notes == ["left"]


def test_a_cancellation_while_the_bridge_opens_closes_it() -> None:
    async def main() -> None:
        entered: list[str] = []

        async def program() -> None:
            async with from_asyncio():
                entered.append("in")

        task = asyncio.create_task(program())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert entered == []

    asyncio.run(main())


def test_a_loop_that_does_not_start_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(bridge: AsyncioBridge) -> None:
        raise OSError("no more threads")

    async def main() -> None:
        monkeypatch.setattr(AsyncioBridge, "_start", fails)
        with pytest.raises(OSError, match="no more threads"):
            async with from_asyncio():
                pass

    asyncio.run(main())


# -- wrap: from trio into asyncio ----------------------------------------------------------------------


def calling(name: str, arguments: str) -> list[Any]:
    """A whole answer that wants a call made."""
    call = {"index": 0, "id": "c1", "function": {"name": name, "arguments": arguments}}
    return [
        head(),
        chunk(frame({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})),
        chunk(frame({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})),
        chunk(b"data: [DONE]\n\n"),
        last_chunk(),
    ]


def test_an_agent_calls_a_tool_of_the_asyncio_program() -> None:
    who: ContextVar[str] = ContextVar("who", default="nobody")
    ran: list[tuple[str, str, bool]] = []

    async def weather(city: str) -> str:
        """Tell the weather."""
        await asyncio.sleep(0)
        ran.append((sniffio.current_async_library(), who.get(), threading.current_thread() is main_thread))
        return f"rain in {city}"

    main_thread = threading.current_thread()

    async def main() -> None:
        who.set("me")
        async with from_asyncio() as bridge:
            env, server = await bridge.enter(talking())
            server.script_next(*calling("weather", '{"city": "Ulm"}'))
            server.script_next(*answer("It rains."))
            agent = Agent(env=env, model=MODEL, tools=[bridge.wrap(weather)])
            result = await bridge.run(agent.run, "Weather?")
            assert result.text == "It rains."
            (tool,) = server.requests[0].json()["tools"]
            assert tool["function"]["name"] == "weather"
            assert list(tool["function"]["parameters"]["properties"]) == ["city"]
            assert next(entry for entry in agent.context if entry["type"] == 4)["content"][0]["text"] == (
                "rain in Ulm"
            )

    asyncio.run(main())
    assert ran == [("asyncio", "me", True)]


def test_trios_timeout_cancels_the_task_in_asyncio_and_waits_for_it() -> None:
    notes: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            notes.append("cancelled")
            raise

    async def main() -> None:
        async with from_asyncio() as bridge:
            wrapped = bridge.wrap(slow)

            async def fn() -> bool:
                with trio.move_on_after(0.01) as scope:
                    await wrapped()
                notes.append("trio goes on")
                return scope.cancelled_caught

            assert await bridge.run(fn)
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert notes == ["cancelled", "trio goes on"]


def test_a_cancellation_crosses_twice() -> None:
    """asyncio cancels what runs in trio, which cancels what runs in asyncio for it."""
    notes: list[str] = []

    async def main() -> None:
        began = asyncio.Event()

        async def inner() -> None:
            began.set()
            try:
                await asyncio.sleep(3600)
            finally:
                notes.append("inner")

        async with from_asyncio() as bridge:
            task = asyncio.create_task(bridge.run(bridge.wrap(inner)))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert notes == ["inner"]

    asyncio.run(main())


def test_what_the_asyncio_function_raises_is_raised_in_trio() -> None:
    async def fails(error: BaseException | None) -> None:
        if error is not None:
            raise error
        try:
            await asyncio.sleep(3600)
        finally:
            raise LookupError("a bug in clean-up")

    async def main() -> None:
        async with from_asyncio() as bridge:
            wrapped = bridge.wrap(fails)
            with pytest.raises(LookupError, match=r"a bug$"):
                await bridge.run(wrapped, LookupError("a bug"))
            with pytest.raises(trio.BrokenResourceError, match="the task in asyncio was cancelled"):
                await bridge.run(wrapped, asyncio.CancelledError())
            with pytest.raises(TypeError):
                await bridge.run(bridge.wrap(lambda: 3))  # type: ignore[arg-type,return-value]

            async def fn() -> None:
                with trio.move_on_after(0.01):
                    await wrapped(None)

            with pytest.raises(LookupError, match="clean-up"):
                await bridge.run(fn)

    asyncio.run(main())


def test_it_is_entered_from_anyio_on_asyncio_too() -> None:
    async def main() -> Done | Error:
        async with from_asyncio() as bridge:
            env, _ = await bridge.enter(talking(*answer("Wren.")))
            return await bridge.run(IO(env=env, model=MODEL).write, QUESTION)

    assert isinstance(anyio.run(main), Done)
