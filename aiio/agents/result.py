"""How a run of an agent ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aiio.context.events import Done, ErrorKind, Terminal
from aiio.context.types import ContentType, Message, Usage


class Stopped(StrEnum):
    """Why a run ended although the model had not finished."""

    MAX_ROUNDS = "max_rounds"
    KILLED = "killed"
    TOKEN_BUDGET = "token_budget"
    COST_BUDGET = "cost_budget"
    TIME_BUDGET = "time_budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """How a run of an agent ended."""

    terminal: Terminal
    """The last request's terminal event."""
    text: str
    """The text of the last answer, as far as it came; may be empty."""
    rounds: int
    """Requests made; those for summaries are not among them."""
    usage: Usage | None
    """Summed over all requests, those for summaries too; None: there was none."""
    stopped: Stopped | None
    """Why it ended early; None: the model finished, or its request failed (see `terminal`)."""
    elapsed_ms: float
    cost: float | None = None
    """USD, summed over the requests whose cost is known; None: it is known of none.

    A provider's own figure counts always, the price list only where the agent has a `Budget` with a cost."""
    unpriced: int = 0
    """Requests that are not in `cost`, as nobody knows their price. Counted where a `Budget` has a cost."""
    compactions: int = 0
    """How often the context was replaced by a summary; see `ContextGuard`."""

    @property
    def ok(self) -> bool:
        """Whether the model finished what it was asked."""
        return self.stopped is None and isinstance(self.terminal, Done)

    @property
    def outcome(self) -> str:
        """One word for tables and logs: `done`, an `ErrorKind` (`cancelled` when killed), or a `Stopped`."""
        if self.stopped is Stopped.KILLED:
            return ErrorKind.CANCELLED.value
        if self.stopped is not None:
            return self.stopped.value
        return "done" if isinstance(self.terminal, Done) else self.terminal.kind.value


def message_text(message: Message | None) -> str:
    """Return the text of *message*: its text blocks, joined as they are (citations cut a text in pieces)."""
    content = () if message is None else message["content"]
    return "".join(block["text"] for block in content if block.get("type") == ContentType.TEXT)
