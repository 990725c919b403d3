"""What a dialect does about its servers beside requests: which it knows, log-in, lists of models, detection.

Every hook has a default. They are class methods, because there is no request and no `IO`; what talks to a
server is async and gets an `Access`, which carries what is asked, so that a dialect opens no sockets itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from aiio.env.auth import Secret, read_credential
from aiio.env.endpoints import KNOWN_ENDPOINTS, KnownEndpoint
from aiio.env.errors import ErrorKind, HttpStatusError, ProviderError

if TYPE_CHECKING:
    from aiio.env.access import Access, Question
    from aiio.env.detect import Search

_ANSWERS = frozenset({400, 404, 405, 421, 426, 501})
"""Statuses of a server that works, and has nothing at the address it was asked for."""


class EndpointHooks:
    """The defaults of those hooks; `Provider` has them all."""

    name: ClassVar[str] = ""
    """Registry key; `define_provider` sets it."""
    secret: ClassVar[bool] = False
    """Whether the endpoints that this dialect knows are left out when endpoints are listed."""

    @classmethod
    def known_endpoints(cls) -> Mapping[str, KnownEndpoint]:
        """Return the endpoints that need no configuration but a credential, by name.

        By default those of the built-in table that speak this dialect. They get this dialect whatever they
        say; of one name the first dialect's counts.
        """
        return {name: known for name, known in KNOWN_ENDPOINTS.items() if known.provider == cls.name}

    @classmethod
    async def detect_endpoints(cls, search: Search) -> Mapping[str, Mapping[str, Any]]:
        """Return the servers of this dialect that run on this machine now; none by default.

        By name: `{"url", "provider"?, "auth"?, "models"?}`. It has 300 ms; what it raises, and what comes
        later, counts as nothing found. Called when somebody looks for servers, never for a request.
        """
        return {}

    @classmethod
    async def login(cls, given: Any, access: Access) -> str | Secret | Mapping[str, Any]:
        """Return what `auth_set` is to keep for what the user *given*: an API key, or an auth record.

        By default text is an API key, and an object an auth record. A dialect that exchanges a password or a
        code for a token asks its server through *access*, which has no credential here.

        ProviderError: kind auth; it can't be one, or the server refuses it.
        """
        if isinstance(given, Mapping):
            return given
        return {"type": "api_key", "token": read_credential(given, f"the log-in to {access.endpoint_name!r}")}

    @classmethod
    async def test_connection(cls, access: Access) -> dict[str, dict[str, Any]] | None:
        """Return the models that the server lists for our credential; None: there is no list to ask for.

        By default the list of models is asked for, and must be one; a dialect that has none asks for
        anything, and any answer but a refusal will do.

        ProviderError: no answer, a refusal, no list where there should be one.
        """
        try:
            return await access.models(details=False)
        except ProviderError as exc:
            if exc.code != "no_listing":
                raise
        try:
            await access.fetch_json(access.url)
        except ProviderError as exc:
            status = exc.status if isinstance(exc.__cause__, HttpStatusError) else None
            if status not in _ANSWERS and exc.kind is not ErrorKind.MALFORMED:
                raise
        return None

    @classmethod
    def model_questions(
        cls, url: str, settings: Mapping[str, Any], token: str | None, models: Mapping[str, Any]
    ) -> Sequence[Question]:
        """Return what to ask about the *models* of a list that the list does not say; nothing by default.

        Asked side by side when a list is fetched, never for a request; what fails is left out. Where two
        answers differ, the later question's counts. Other arguments as for `models_request`.
        """
        return ()

    @classmethod
    def models_request(
        cls, url: str, settings: Mapping[str, Any], token: str | None, after: str | None = None
    ) -> tuple[str, Mapping[str, str]] | None:
        """Return (URL, headers) of the GET that lists the models; None, as by default: there is no such list.

        Args:
          url: the endpoint's base URL.
          settings: the endpoint's.
          token: the credential; it goes into a header and nowhere else.
          after: what `next_models` said of the page before; None: the first page.

        Raises:
          ValueError: a setting that can't be sent.
        """
        return None

    @classmethod
    def read_models(cls, data: Any) -> dict[str, dict[str, Any]]:
        """Return what one page of the list says of each model, by id: `context_window`, `max_output`, ...

        ValueError: it is no list of models.
        """
        raise ValueError(f"provider {cls.name!r} reads no list of models")

    @classmethod
    def next_models(cls, data: Any) -> str | None:
        """Return what to ask for after the page *data*; None: it was the last one."""
        return None
