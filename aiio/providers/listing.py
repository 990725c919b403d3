"""The list of models of the OpenAI dialects: `GET /models` with the credential of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from aiio.env.access import Question

from . import openai_models
from .base import below
from .dialect import AnswerDialect
from .quirks import Quirks


class OpenAIListing(AnswerDialect):
    """What OpenAI's dialects have in common beside their requests."""

    @classmethod
    def models_request(
        cls, url: str, settings: Mapping[str, Any], token: str | None, after: str | None = None
    ) -> tuple[str, Mapping[str, str]]:
        """See `Provider`. The base URL may hold the path of a request."""
        path, headers = openai_models.models_request(settings)
        headers = {**_credential(settings, token), **headers}
        base, mark, query = url.partition("?")
        return below(f"{base.rstrip('/').removesuffix(cls.path)}{mark}{query}", path), headers

    @classmethod
    def read_models(cls, data: Any) -> dict[str, dict[str, Any]]:
        """See `Provider`."""
        return openai_models.read_models(data)

    @classmethod
    def model_questions(
        cls, url: str, settings: Mapping[str, Any], token: str | None, models: Mapping[str, Any]
    ) -> Sequence[Question]:
        """See `Provider`. A llama.cpp server that lists no window is asked for its properties."""
        if not openai_models.wants_props(models):
            return ()
        read = partial(openai_models.read_props, models=models)
        url = openai_models.props_url(url.removesuffix(cls.path))
        return [Question(url=url, headers=_credential(settings, token), read=read)]


def _credential(settings: Mapping[str, Any], token: str | None) -> dict[str, str]:
    """Return the header that carries the credential."""
    if token is None:
        return {}
    bearer = Quirks.of(settings.get("quirks") or {}).auth_header == "bearer"
    return {"Authorization": f"Bearer {token}"} if bearer else {"api-key": token}
