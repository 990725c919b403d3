"""The list of models of the OpenAI dialects: `GET /models` with the credential of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
        if token is not None:
            bearer = Quirks.of(settings.get("quirks") or {}).auth_header == "bearer"
            credential = {"Authorization": f"Bearer {token}"} if bearer else {"api-key": token}
            headers = {**credential, **headers}
        base, mark, query = url.partition("?")
        return below(f"{base.rstrip('/').removesuffix(cls.path)}{mark}{query}", path), headers

    @classmethod
    def read_models(cls, data: Any) -> dict[str, dict[str, Any]]:
        """See `Provider`."""
        return openai_models.read_models(data)
