"""One endpoint, as the hooks of its dialect see it: who it is, and a way to ask its server something small.

A dialect says what to ask and what an answer means; what is sent, side by side and within limits, is sent
from here. So a provider with I/O in its hooks needs neither sockets nor trio.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from aiio.context.events import ErrorKind
from aiio.context.log import get_logger

from .errors import ProviderError
from .fetch import Network, fetch_json, without_secrets

FETCH_LIMIT = 20.0
"""Seconds for a list of models, all pages."""
DETAILS_LIMIT = 5.0
"""Seconds for what is asked about the models of a list, all of it."""
_MOST_PAGES = 20
_MOST_QUESTIONS = 200
_AT_A_TIME = 8

Models = dict[str, dict[str, Any]]
"""What is known of models, by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Something to ask about models that a list names."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    read: Callable[[Any], Mapping[str, Mapping[str, Any]]]
    """Given the JSON answer, returns facts by model. ValueError: it is none."""
    body: Any = None
    """JSON data to be posted; None: it is a GET."""


class Access:
    """See the module's docstring. Made by `Env.access`; holds a credential, and shows none.

    Args:
      network: carries the requests.
      provider: the class of the endpoint's dialect.
      endpoint_name: its name.
      url: its base URL.
      settings: its settings, secrets masked.
      token: its credential, checked; None: there is none.
    """

    def __init__(
        self,
        network: Network,
        provider: Any,
        *,
        endpoint_name: str,
        url: str,
        settings: Mapping[str, Any],
        token: str | None,
    ) -> None:
        self._network = network
        self._provider = provider
        self.endpoint_name = endpoint_name
        self.url = url
        self.settings = settings
        self.token = token

    def __repr__(self) -> str:
        return f"<Access to {self.endpoint_name!r}>"

    async def fetch_json(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        body: Any = None,
        limit: float = FETCH_LIMIT,
    ) -> Any:
        """GET *url*, or POST *body* as JSON to it, and return the JSON value of the answer.

        The credential is not added: it goes where the dialect puts it. *limit* is seconds.

        Raises:
          ProviderError: what the transport raised, a status that is not 2xx, no JSON (`malformed`), too slow.

        Cancellation: safe. Always a checkpoint.
        """
        data = None if body is None else json.dumps(body).encode()
        sent = dict(headers or {})
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        return await fetch_json(
            self._network,
            url,
            sent,
            endpoint=self.endpoint_name,
            limit=limit,
            body=data,
            settings=self.settings,
        )

    async def models(self, *, details: bool = True) -> Models:
        """Ask for the list of models, all pages, and with *details* what else the dialect asks about them.

        Raises:
          ProviderError: no answer, no such list (code `no_listing`), something else than a list (`malformed`,
            code `bad_listing`). What is asked about single models may fail; it is left out then.

        Cancellation: safe. Always a checkpoint.
        """
        models: Models = {}
        after: str | None = None
        deadline = trio.current_time() + FETCH_LIMIT
        for _ in range(_MOST_PAGES):
            url, headers = self._listing(after)
            left = max(deadline - trio.current_time(), 0.001)
            page = await self.fetch_json(url, headers, limit=left)
            try:
                models.update(self._provider.read_models(page))
                after = self._provider.next_models(page)
            except Exception as exc:
                raise ProviderError(
                    ErrorKind.MALFORMED,
                    f"the server of {self.endpoint_name!r} answered with no list of models",
                    code="bad_listing",
                ) from exc
            if after is None:
                break
        if details:
            await self._look_closer(models)
        return models

    def _listing(self, after: str | None) -> tuple[str, Mapping[str, str]]:
        """Return the request for a page. ProviderError: the dialect has none, or fails to make it."""
        name = self.endpoint_name
        broken: ProviderError | None = None
        asked = None
        try:
            asked = self._provider.models_request(self.url, self.settings, self.token, after)
        except Exception as exc:  # noqa: BLE001  # raised below: it may quote the credential it was given
            text = f"can't ask {name!r} for its models: {type(exc).__name__}: {exc}"
            broken = without_secrets(ProviderError(ErrorKind.PROVIDER, text), self._network.scrubber)
        if broken is not None:
            raise broken
        if asked is None:
            raise ProviderError(
                ErrorKind.PROVIDER,
                f"the dialect {self._provider.name!r} of endpoint {name!r} has no list of models",
                code="no_listing",
            )
        request: tuple[str, Mapping[str, str]] = asked
        return request

    async def _look_closer(self, models: Models) -> None:
        """Ask what the dialect wants to know of *models*, side by side, and put the answers into them."""
        try:
            questions: Sequence[Question] = self._provider.model_questions(
                self.url, self.settings, self.token, models
            )[:_MOST_QUESTIONS]
        except Exception as exc:  # noqa: BLE001  # a plug-in's bug costs the details, not the list
            self._missing(type(exc).__name__)
            return
        answers: dict[int, Mapping[str, Mapping[str, Any]]] = {}
        errors: list[str] = []
        waiting = iter(enumerate(questions))

        async def work() -> None:
            for place, question in waiting:
                try:
                    data = await self.fetch_json(question.url, question.headers, body=question.body)
                    answers[place] = question.read(data)
                except Exception as exc:  # noqa: BLE001  # see above
                    errors.append(type(exc).__name__)

        with trio.move_on_after(DETAILS_LIMIT):
            async with trio.open_nursery() as nursery:
                for _ in range(min(_AT_A_TIME, len(questions))):
                    nursery.start_soon(work, name="aiio.models")
        if len(answers) < len(questions):
            self._missing(*errors)
        for _, answer in sorted(answers.items()):
            for model in models.keys() & answer.keys():
                models[model].update(answer[model])

    def _missing(self, *errors: str) -> None:
        errors = tuple(sorted(set(errors)))  # none: it took too long
        get_logger().debug("models.details_missing", endpoint=self.endpoint_name, errors=errors)
