"""Bytes and sockets: how a request reaches a peer and frames come back. No dialect is known here."""

from .base import Connection, Duplex, Frame, Framing, Reuse, Slot, Transport, TransportRequest

__all__ = ["Connection", "Duplex", "Frame", "Framing", "Reuse", "Slot", "Transport", "TransportRequest"]
