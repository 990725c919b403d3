"""Bytes and sockets: how a request reaches a peer and frames come back. No dialect is known here."""

from .base import Connection, Frame, Framing, Transport, TransportRequest

__all__ = ["Connection", "Frame", "Framing", "Transport", "TransportRequest"]
