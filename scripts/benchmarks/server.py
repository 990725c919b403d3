"""The loopback server: `python -m scripts.benchmarks.server CERTIFICATE`, in its own process.

Plain blocking sockets, a thread a connection, and everything rendered before the first byte goes out, so
that it is never the slower side: sending a write is one system call. To who begins with a handshake it
speaks TLS. It prints its port on one line and lives until its standard input ends, so that it can't outlive
whoever started it.

A load with a period is sent by one thread for all its streams. It starts when every stream has got its
first frames, and keeps to its own timetable whether the readers keep up or not, as providers do; what a
slow reader has not taken yet waits in the socket.
"""

from __future__ import annotations

import base64
import hashlib
import socket
import ssl
import sys
import threading
import time

from .loads import HELD, Load, parse_load, wire_writes

HEAD_START = 0.3
"""Seconds between the last stream's first frames and the first paced write: readers come to rest."""

PATIENCE = 60.0
"""Seconds a reader may take nothing before its connection is given up."""

TLS_HANDSHAKE = b"\x16"
"""How a connection over TLS begins."""


class Server:
    """Accepts on a free loopback port; streams of a paced load wait here for one another."""

    def __init__(self, certificate: str) -> None:
        """*certificate*: a PEM file with the key, the certificate and what vouches for it."""
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(certificate)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._waiting: dict[Load, list[socket.socket]] = {}

    def serve(self) -> None:
        """Accept for ever."""
        while True:
            sock, _ = self._listener.accept()
            threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        """Answer a connection's request, or all where it lasts; a reader that leaves early is no fault."""
        try:
            sock.settimeout(PATIENCE)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if sock.recv(1, socket.MSG_PEEK) == TLS_HANDSHAKE:
                sock = self._tls.wrap_socket(sock, server_side=True)
            target, key = read_request(sock)
            while (load := parse_load(target)).content == "kept":
                for write in wire_writes(load):
                    sock.sendall(write)
                target, key = read_request(sock)
            opening, *others = wire_writes(load)
            if key:
                sock.sendall(acceptance(key))
                _receive(sock)  # the request; a client that saw the closing frame before could not send it
            sock.sendall(opening)
            if load.content in HELD:
                sock.settimeout(None)
                sock.recv(1)  # until the reader leaves
                others = []
            if load.period_ms:
                self._join(load, sock)
                return
            for write in others:
                sock.sendall(write)
            if key:
                sock.sendall(b"\x88\x00")
                sock.shutdown(socket.SHUT_WR)
            while key and sock.recv(1 << 16):
                pass  # what the reader still says; closing with it unread would reset the connection
        except OSError:
            pass
        sock.close()

    def _join(self, load: Load, sock: socket.socket) -> None:
        """Let the stream wait for the others of its load; the last one to come sends for all."""
        with self._lock:
            group = self._waiting.setdefault(load, [])
            group.append(sock)
            if len(group) < load.streams:
                return
            del self._waiting[load]
        pace(load, group)


def acceptance(key: str) -> bytes:
    """Return the answer to a WebSocket handshake with *key*."""
    proof = base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest())
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        b"sec-websocket-accept: " + proof + b"\r\n\r\n"
    )


def read_request(sock: socket.socket) -> tuple[str, str]:
    """Read one request with its body; return its target and WebSocket key, if any. OSError: the peer left."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _receive(sock)
    head, _, body = data.partition(b"\r\n\r\n")
    length, key = 0, ""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
        if name.strip().lower() == b"sec-websocket-key":
            key = value.strip().decode()
    while len(body) < length:
        body += _receive(sock)
    return head.split(b" ", 2)[1].decode(), key


def _receive(sock: socket.socket) -> bytes:
    data = sock.recv(1 << 16)
    if not data:
        raise ConnectionError("the reader left before its request was whole")
    return data


def pace(load: Load, group: list[socket.socket]) -> None:
    """Send *load* to every socket of *group*, a write a period each, phases spread evenly."""
    _, *writes = wire_writes(load)
    period = load.period_ms / 1000
    start = time.perf_counter() + HEAD_START
    for round_number, write in enumerate(writes):
        for position, sock in enumerate(group):
            due = start + (round_number + position / len(group)) * period
            if (wait := due - time.perf_counter()) > 0:
                time.sleep(wait)
            try:
                sock.sendall(write)
            except OSError:  # left early, or took nothing for PATIENCE: the others go on
                continue
    for sock in group:
        sock.close()


def main() -> None:
    """Serve until standard input ends."""
    server = Server(sys.argv[1])
    threading.Thread(target=server.serve, daemon=True).start()
    print(server.port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
