"""Tokens that run out: renewed shortly before, once for all requests that wait for the same one.

A request is not stopped by a failed renewal: the old token may still do, and if it does not, the
provider's refusal says more than we could.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import trio

from aiio.context.events import ErrorKind
from aiio.context.log import get_logger

from .auth import Secret, masked_record
from .credential_file import revealed
from .detect import is_loopback
from .directory import in_settings
from .errors import ProviderError
from .fetch import Network, fetch_json

Refresh = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Given an auth record (its secrets as `Secret`s), returns what replaces it: `access`, `expires`, ..."""

EARLY = 30.0
"""Seconds before its end when a token is renewed."""
REFRESH_LIMIT = 15.0
"""Seconds a renewal may take."""
PAUSE_AFTER_FAILURE = 10.0
"""Seconds in which a failed renewal is not tried again."""
_SAVE_LIMIT = 10.0  # seconds
_EPOCH_MS = 1e11


class TokenRenewal:
    """Renews the tokens of endpoints.

    Args:
      network: carries requests to token servers.
      record: returns the live auth record of an endpoint.
      save: `await save(endpoint, changes)` changes and keeps it.
      wall_clock: epoch seconds.
    """

    def __init__(
        self,
        network: Network,
        record: Callable[[str], Any],
        save: Callable[[str, Mapping[str, Any]], Awaitable[None]],
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.own: dict[str, Refresh] = {}
        """Renewals that the program registered, by endpoint."""
        self.wall_clock = wall_clock
        self._network = network
        self._record = record
        self._save = save
        self._locks: dict[str, trio.Lock] = {}
        self._not_before: dict[str, float] = {}  # trio time

    def is_due(self, name: str) -> bool:
        """Tell whether the token of endpoint *name* ends within 30 s and can be renewed."""
        auth = self._record(name)
        if not isinstance(auth, Mapping) or auth.get("type") != "oauth" or not auth.get("refresh"):
            return False
        expires = auth.get("expires")
        if isinstance(expires, bool) or not isinstance(expires, int | float):
            return False
        return (expires / 1000 if expires > _EPOCH_MS else expires) - self.wall_clock() <= EARLY

    async def renew(self, name: str, descriptor: object) -> None:
        """Renew the token of endpoint *name*, unless somebody did meanwhile. Never fails: the log says why.

        *descriptor*: setting `oauth` of the endpoint, `{token_url, client_id}`, for want of a registered one.

        Cancellation: before the new token came, nothing has changed; once it came, it is kept first.
        """
        refresh = self.own.get(name)
        if refresh is None and not isinstance(descriptor, Mapping):
            return
        async with self._locks.setdefault(name, trio.Lock()):
            if not self.is_due(name) or trio.current_time() < self._not_before.get(name, 0.0):
                return
            why = f"no answer in {REFRESH_LIMIT:g} s"
            with trio.move_on_after(REFRESH_LIMIT):
                try:
                    record = masked_record(self._record(name), in_settings(name))
                    changes = await (refresh(record) if refresh else self._ask(name, record, descriptor))
                    with trio.move_on_after(_SAVE_LIMIT, shield=True):  # many old tokens die with the new one
                        await self._save(name, changes)
                    return
                except ProviderError as exc:
                    why = exc.message
                except Exception as exc:  # noqa: BLE001  # the program's own function, or a disk that refuses
                    why = type(exc).__name__
            self._not_before[name] = trio.current_time() + PAUSE_AFTER_FAILURE
            get_logger().warning("oauth.not_renewed", endpoint=name, why=why)

    async def _ask(self, name: str, record: Mapping[str, Any], descriptor: Any) -> Mapping[str, Any]:
        """Ask the token server, as RFC 6749 section 6 has it."""
        url, client = descriptor.get("token_url"), descriptor.get("client_id")
        if not isinstance(url, str) or not (urlsplit(url).scheme == "https" or is_loopback(url)):
            raise ProviderError(ErrorKind.AUTH, f"oauth.token_url of endpoint {name!r} is no https URL")
        form = {"grant_type": "refresh_token", "refresh_token": revealed(record["refresh"])}
        if isinstance(client, str):
            form["client_id"] = client
        answer = await fetch_json(
            self._network,
            url,
            {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"},
            endpoint=name,
            limit=REFRESH_LIMIT,
            body=urlencode(form).encode(),
        )
        return read_token(answer, name, self.wall_clock())


def read_token(answer: object, name: str, now: float) -> dict[str, Any]:
    """Return the changes to an auth record that a token server's *answer* stands for.

    ProviderError: there is no token in it.
    """
    access = answer.get("access_token") if isinstance(answer, Mapping) else None
    if not isinstance(answer, Mapping) or not isinstance(access, str) or not access:
        raise ProviderError(ErrorKind.AUTH, f"the token server of endpoint {name!r} gave no access_token")
    changes: dict[str, Any] = {"access": Secret(access), "token": None, "expires": None}
    if isinstance(answer.get("refresh_token"), str):
        changes["refresh"] = Secret(answer["refresh_token"])
    seconds = answer.get("expires_in")
    if isinstance(seconds, str) and seconds.isdigit():
        seconds = int(seconds)
    if isinstance(seconds, int | float) and not isinstance(seconds, bool):
        changes["expires"] = int(now + seconds)
    return changes
