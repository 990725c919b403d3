"""Dialects, without I/O: context in, request out; native frames in, events out."""

from .base import Capabilities, Provider, ProviderIO, define_provider

__all__ = ["Capabilities", "Provider", "ProviderIO", "define_provider"]
