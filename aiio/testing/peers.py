"""What the loopback server and the proxy in front of it have in common: an address, and endpoints for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .dialects import DIALECTS, dialect
from .loopback import HOST, Loopback

if TYPE_CHECKING:
    from aiio.env.env import Env

KEY = "loopback-key"
"""The credential of the endpoints; it opens nothing."""


class Peer:
    """Somebody on 127.0.0.1 whom an IO can ask.

    Args:
      name: what its endpoints' names begin with.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._loopback: Loopback | None = None
        self._registered = False

    def attach(self, loopback: Loopback) -> None:
        """Take note of the port that listens."""
        self._loopback = loopback

    def register(self, env: Env) -> None:
        """Add an endpoint for every dialect to *env*: `<name>-chat`, `<name>-anthropic`, ..."""
        for found in DIALECTS.values():
            env.register_endpoint(
                f"{self.name}-{found.name}",
                provider=found.provider,
                url=f"{self.url}{found.base}",
                auth=KEY,
                proxy="direct",
            )
        self._registered = True

    def model(self, name: str = "chat") -> str:
        """Return the selector of the model in dialect *name*: `"chat"`, `"responses"`, `"anthropic"`, ...

        ValueError: no such dialect, or no Env knows the endpoints.
        """
        if not self._registered:
            raise ValueError(f"no Env knows {self.name!r}: give it an env, or call register(env)")
        return f"{self.name}-{dialect(name).name}/mock"

    @property
    def url(self) -> str:
        """`http://127.0.0.1:<port>`."""
        return f"http://{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """The TCP port."""
        return self.loopback.port

    @property
    def loopback(self) -> Loopback:
        """The port and its connections: `open`, `connections`, `faults`, `wait_idle()`, `refuse()`."""
        assert self._loopback is not None  # attached before anybody gets hold of this
        return self._loopback
