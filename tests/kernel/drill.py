"""Faults that only a kernel makes: packets dropped, links down, sockets destroyed. For a process of its own.

    unshare --net --map-root-user python -m tests.kernel.drill      # prints {cell: what became of the write}

It must run in a network namespace that nobody else uses. A second one holds the server; a pair of virtual
Ethernet devices is the wire between them, and every fault is done to that wire.

Limits that are to fall are short, the others long: no cell depends on how fast this machine is.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

import aiio
from tests import serving
from tests.serving import Exchange, Server, Step, chunk, head, last_chunk

HERE, THERE = "10.77.0.1", "10.77.0.2"
SHORT, LONG = "800ms", "60s"
PATIENCE = 30.0
_CLONE_NEWNET = 0x40000000


class Missing(Exception):
    """This machine can't do it; says what."""


def run(*command: str) -> None:
    """Run *command*. Missing: it is not there, or refuses."""
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as exc:
        raise Missing(f"{command[0]} is not installed") from exc
    except subprocess.CalledProcessError as exc:
        raise Missing(f"`{' '.join(command)}`: {exc.stderr.strip().splitlines()[-1:]}") from exc


class Wire:
    """Two namespaces, ours and the peer's, and the link between them. `close` it."""

    def __init__(self) -> None:
        # It ends when its input does, that is with us, however we end.
        self.holder = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE)
        self._own = os.open("/proc/self/ns/net", os.O_RDONLY)
        ours = os.readlink("/proc/self/ns/net")
        for _ in range(1000):
            if os.readlink(f"/proc/{self.holder.pid}/ns/net") != ours:
                break
            time.sleep(0.005)
        run(
            "ip",
            "link",
            "add",
            "here",
            "type",
            "veth",
            "peer",
            "name",
            "there",
            "netns",
            str(self.holder.pid),
        )
        self.up()

    def up(self) -> None:
        """Make the link as it should be."""
        run("ip", "link", "set", "lo", "up")
        self.there("ip", "link", "set", "lo", "up")
        run("ip", "address", "replace", f"{HERE}/24", "dev", "here")
        self.there("ip", "address", "replace", f"{THERE}/24", "dev", "there")
        run("ip", "link", "set", "here", "mtu", "1500", "up")
        self.there("ip", "link", "set", "there", "mtu", "1500", "up")
        for ask in (run, self.there):
            ask("nft", "flush ruleset")
            ask("nft", "add table inet f")
            ask("nft", "add chain inet f in { type filter hook input priority 0; }")
        if _has("ping"):  # so that each end knows the other's hardware address before a cell begins
            run("ping", "-c1", "-W5", THERE)

    def there(self, *command: str) -> None:
        """Run *command* at the peer's side."""
        run("nsenter", "--net", f"--target={self.holder.pid}", *command)

    def rule(self, text: str, *, there: bool = False) -> None:
        """Add a rule for packets that come in, here or there."""
        (self.there if there else run)("nft", f"add rule inet f in {text}")

    def listen(self) -> socket.socket:
        """Return a listening socket at the peer's side."""
        libc = ctypes.CDLL(None, use_errno=True)
        peer = os.open(f"/proc/{self.holder.pid}/ns/net", os.O_RDONLY)
        try:
            if libc.setns(peer, _CLONE_NEWNET):
                raise Missing(f"setns: {os.strerror(ctypes.get_errno())}")
            found = socket.socket()
            found.bind((THERE, 0))
            found.listen()
            return found
        finally:
            libc.setns(self._own, _CLONE_NEWNET)
            os.close(peer)

    def close(self) -> None:
        """End the peer's namespace."""
        self.holder.communicate()
        os.close(self._own)


def _has(program: str) -> bool:
    return any(os.access(f"{folder}/{program}", os.X_OK) for folder in os.environ["PATH"].split(":"))


@dataclass(kw_only=True)
class Drill:
    """One cell: what the server does, what is done to the wire, and what the write is given."""

    steps: Callable[[Wire], list[Step]] = lambda wire: [head(), say("Hm"), done_frame(), last_chunk()]
    before: Callable[[Wire], None] = lambda wire: None
    options: dict[str, Any] = field(default_factory=dict)
    act: str | None = None
    """Done to the write once the wire is broken: `kill`, `cancel`."""
    prompt: str = "Hello"


def say(text: str) -> Step:
    """A frame with text."""
    frame = {"choices": [{"index": 0, "delta": {"content": text}}]}
    return chunk(b"data: " + json.dumps(frame).encode() + b"\n\n")


def done_frame() -> Step:
    """The end of an answer."""
    frame = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return chunk(b"data: " + json.dumps(frame).encode() + b"\n\ndata: [DONE]\n\n")


BROKEN = trio.lowlevel.RunVar[trio.Event]("broken")
HEARD = trio.lowlevel.RunVar[trio.Event]("heard")


def do(work: Callable[[], None]) -> Step:
    """Do something to the wire, once the client has heard what was sent before."""

    async def step(exchange: Exchange) -> None:
        await HEARD.get().wait()
        work()
        BROKEN.get().set()

    return step


def keep_sending() -> Step:
    """Send on and on: nothing of it arrives, or the answers to it do harm."""

    async def step(exchange: Exchange) -> None:
        for _ in range(2000):
            await exchange.send(b"2\r\n: \r\n")
            await trio.sleep(0.02)

    return step


def broken_after_text(work: Callable[[Wire], None]) -> Callable[[Wire], list[Step]]:
    """A server that says something, breaks the wire, and sends on."""
    return lambda wire: [head(), say("Hm"), do(lambda: work(wire)), keep_sending()]


def dropped(wire: Wire) -> None:
    wire.rule(f"ip saddr {THERE} drop")


def deaf(wire: Wire) -> None:
    """What we send does not arrive, not even that something arrived here."""
    wire.rule(f"ip saddr {HERE} drop", there=True)


def reset_by_the_network(wire: Wire) -> None:
    wire.rule(f"ip saddr {HERE} tcp flags != syn reject with tcp reset", there=True)


def destroyed(wire: Wire) -> None:
    run("ss", "--kill", "--tcp", "dst", THERE)


def far_end_down(wire: Wire) -> None:
    wire.there("ip", "link", "set", "there", "down")


def near_end_down(wire: Wire) -> None:
    run("ip", "link", "set", "here", "down")


def outage(wire: Wire) -> None:
    near_end_down(wire)
    wire.up()


def narrow(wire: Wire) -> None:
    run("ip", "link", "set", "here", "mtu", "576")
    wire.there("ip", "link", "set", "there", "mtu", "576")


def black_hole(wire: Wire) -> None:
    """Large packets vanish, and nobody says so."""
    wire.rule("ip length > 600 drop", there=True)


def lossy(wire: Wire) -> None:
    """A bad radio link."""
    noise = (
        "netem",
        "loss",
        "10%",
        "delay",
        "5ms",
        "5ms",
        "duplicate",
        "5%",
        "reorder",
        "20%",
        "corrupt",
        "1%",
    )
    run("tc", "qdisc", "add", "dev", "here", "root", *noise)
    wire.there("tc", "qdisc", "add", "dev", "there", "root", *noise)


STUCK = {"connect_timeout": LONG, "stuck_timeout": SHORT, "timeout": LONG}
CONNECT = {"connect_timeout": SHORT, "stuck_timeout": LONG, "timeout": LONG}
OVERALL = {"connect_timeout": LONG, "stuck_timeout": LONG, "timeout": "1s"}
PATIENT = {"connect_timeout": LONG, "stuck_timeout": LONG, "timeout": LONG}

CELLS: dict[str, Drill] = {
    "nothing": Drill(options=PATIENT),
    "drop in the answer": Drill(steps=broken_after_text(dropped), options=STUCK),
    "drop in the answer, overall": Drill(steps=broken_after_text(dropped), options=OVERALL),
    "drop in the answer, kill": Drill(steps=broken_after_text(dropped), options=PATIENT, act="kill"),
    "drop in the answer, cancel": Drill(steps=broken_after_text(dropped), options=PATIENT, act="cancel"),
    "drop of SYN": Drill(before=lambda wire: wire.rule("tcp flags syn drop", there=True), options=CONNECT),
    "drop of SYN-ACK": Drill(before=dropped, options=CONNECT),
    "drop before the head": Drill(
        steps=lambda wire: [_at_once(lambda: dropped(wire)), head(), keep_sending()], options=CONNECT
    ),
    "reset by the network": Drill(steps=broken_after_text(reset_by_the_network), options=PATIENT),
    "socket destroyed": Drill(steps=broken_after_text(destroyed), options=PATIENT),
    "port refused by the network": Drill(
        before=lambda wire: wire.rule("tcp flags syn reject with tcp reset", there=True), options=PATIENT
    ),
    "host unreachable": Drill(
        before=lambda wire: wire.rule("tcp flags syn reject with icmp type host-unreachable", there=True),
        options=PATIENT,
    ),
    "prohibited by a router": Drill(
        before=lambda wire: wire.rule("tcp flags syn reject with icmp type admin-prohibited", there=True),
        options=PATIENT,
    ),
    "link down before connect": Drill(before=near_end_down, options=PATIENT),
    "far link down before connect": Drill(before=far_end_down, options=CONNECT),
    "far link down in the answer": Drill(steps=broken_after_text(far_end_down), options=STUCK),
    "link down in the answer": Drill(steps=broken_after_text(near_end_down), options=STUCK),
    "link down and up in the answer": Drill(
        steps=lambda wire: [
            head(),
            say("Hm"),
            do(lambda: outage(wire)),
            say("Hm"),
            done_frame(),
            last_chunk(),
        ],
        options=PATIENT,
    ),
    "our acknowledgements lost": Drill(steps=broken_after_text(deaf), options=STUCK),
    "narrow link": Drill(before=narrow, prompt="x" * 100_000, options=PATIENT),
    "large packets vanish": Drill(before=black_hole, prompt="x" * 20, options=PATIENT),
    "large packets vanish, long prompt": Drill(before=black_hole, prompt="x" * 700, options=CONNECT),
    "loss, delay, reordering": Drill(before=lossy, prompt="x" * 20_000, options=PATIENT),
}
NOISE = "loss, delay, reordering"
"""Needs the kernel's network emulator, which smaller kernels leave out."""


def _at_once(work: Callable[[], None]) -> Step:
    async def step(exchange: Exchange) -> None:
        work()
        BROKEN.get().set()

    return step


# --- running them ---


async def run_cell(cell: Drill, wire: Wire) -> dict[str, Any]:
    """Return what became of the write."""
    BROKEN.set(trio.Event())
    HEARD.set(trio.Event())
    listener = wire.listen()
    server = Server(f"http://{THERE}:{listener.getsockname()[1]}", cell.steps(wire))
    cell.before(wire)
    heard: list[Any] = []
    cancelled = trio.CancelScope()

    def hear(event: Any) -> None:
        heard.append(event)
        if isinstance(event, aiio.TextDelta):
            HEARD.get().set()

    async def act(io: aiio.IO) -> None:
        await BROKEN.get().wait()
        if cell.act == "kill":
            await io.kill()
        elif cell.act == "cancel":
            cancelled.cancel()

    async def handle(tcp: trio.SocketStream) -> None:
        try:
            await serving._run_scripts(server, tcp, None, "request", keep=False)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass
        finally:
            tcp.socket.close()

    files = _open_files()
    with trio.fail_after(PATIENCE):
        async with aiio.Env({}, environ={}) as env, trio.open_nursery() as nursery:
            listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(listener))]
            nursery.start_soon(trio.serve_listeners, handle, listeners)
            env.register_endpoint("far", url=f"{server.url}/v1")
            io = aiio.IO(env=env, model="far/m", on_data=hear, **cell.options)
            nursery.start_soon(act, io)
            with cancelled:
                await io.write([aiio.user_message(cell.prompt)])
            left = {"in_flight": len(env.active_io), "state": str(io.state)}
            nursery.cancel_scope.cancel()
    terminals = [event for event in heard if isinstance(event, aiio.Done | aiio.Error)]
    return {**_facts(terminals), **left, "files": sorted(_open_files() - files)}


def _facts(terminals: list[Any]) -> dict[str, Any]:
    last = terminals[-1] if terminals else None
    message = None if last is None else last.message
    blocks = [] if message is None else message["content"]
    text = "".join(block.get("text", "") for block in blocks)
    names = ("kind", "limit", "cancelled", "emitted", "retryable", "error")
    facts = {name: getattr(last, name, None) for name in names}
    return {"terminals": len(terminals), "type": type(last).__name__, "text": text, **facts}


def _open_files() -> set[str]:
    """Return the sockets that this process has open."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue  # the folder itself
    return {link for link in found if link.startswith("socket:")}


@contextmanager
def wired() -> Iterator[Wire]:
    """A wire that is as it should be."""
    wire = Wire()
    try:
        yield wire
    finally:
        wire.close()


def main() -> None:
    """Run all cells, or those named; print what became of each as JSON."""
    results: dict[str, Any] = {}
    for name in sys.argv[1:] or CELLS:
        try:
            with wired() as wire:
                results[name] = trio.run(run_cell, CELLS[name], wire)
        except Missing as exc:
            results[name] = {"missing": str(exc)}
        finally:
            subprocess.run(["ip", "link", "delete", "here"], capture_output=True, check=False)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
