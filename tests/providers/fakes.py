"""An IO that drives nothing: what a provider may ask of one, as plain attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class FakeIO:
    """Stands in for `aiio.IO` in tests of providers; records what is reported to it."""

    def __init__(
        self,
        *,
        quirks: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        token: str | None = "key-1",
        model: str = "m1",
        endpoint: str = "fake",
        **settings: Any,
    ) -> None:
        self.settings: Mapping[str, Any] = settings if quirks is None else {"quirks": quirks, **settings}
        self.current_model = model
        self.endpoint_name = endpoint
        self.token = token
        self.repairs: list[tuple[str, dict[str, Any]]] = []
        self.plan_usage: list[Mapping[str, Any]] = []
        self.kept: Mapping[str, Any] | None = None
        """What the provider asked to keep last, or None."""
        self._tools = tools

    def tools(self) -> Sequence[Mapping[str, Any]]:
        return self._tools

    def set_context_usage(self, *, used: float | None = None, total: float | None = None) -> None:
        """Not asked by any test here."""

    def set_plan_usage(self, *, label: str | None = None, quotas: Mapping[str, Any] | None = None) -> None:
        self.plan_usage.append(quotas or {})

    def keep(self, memory: Mapping[str, Any]) -> None:
        self.kept = memory

    def repaired(self, what: str, **facts: Any) -> None:
        self.repairs.append((what, facts))

    @property
    def repair_names(self) -> list[str]:
        return [what for what, _ in self.repairs]
