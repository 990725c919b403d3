"""What a provider is: a dialect, without I/O. Context in, request out; native frames in, events out.

A provider needs two pure functions, `request` and `translate`; everything else has a default. One
instance serves one request: it is made with the endpoint's URL and the IO that drives it. What a dialect
does beside requests (log-in, lists of models, looking for its servers) is in `endpoint_hooks.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias, TypeVar, get_args

import msgspec

from aiio.context.events import Placed, ResponseEvent, Send, Working
from aiio.context.types import Message
from aiio.env.durations import Duration
from aiio.env.errors import ProviderError, classify_error
from aiio.env.registry import BUILTIN_PROVIDERS, load_object

from .contract import HOOKS as HOOKS
from .contract import check_hooks
from .endpoint_hooks import EndpointHooks

Events: TypeAlias = Iterable["ResponseEvent | Placed | Working | Send | dict[str, Any]"]
"""What `translate` may return: events, dicts that convert to them, blocks to place, `Working`, `Send`."""

Framing: TypeAlias = Literal["sse", "ndjson"]
"""How a dialect's answer is cut into frames over HTTP."""

WORKING: Final = (Working(),)
"""What `translate` returns for a frame that makes no event but reports work on the answer: it is progress."""


class ProviderIO(Protocol):
    """What a provider may ask of the IO that drives it (`aiio.IO` has all of it)."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The endpoint's settings with this IO's overrides; a fresh dict each time."""
        ...

    @property
    def current_model(self) -> str:
        """The bare model id of this request."""
        ...

    @property
    def endpoint_name(self) -> str:
        """The endpoint's registered name."""
        ...

    @property
    def token(self) -> str | None:
        """The credential for this request, checked and trimmed; None when the endpoint needs none.

        It goes into a header and nowhere else.
        """
        ...

    def tools(self) -> Sequence[Mapping[str, Any]]:
        """Tool descriptions to publish: `{name, description, input_schema, ...}` each."""
        ...

    def set_context_usage(self, *, used: float | None = None, total: float | None = None) -> None:
        """Report tokens used of the context window, and its size, as far as known."""
        ...

    def set_plan_usage(self, *, label: str | None = None, quotas: Mapping[str, Any] | None = None) -> None:
        """Report rate limits and plan allowances."""
        ...

    @property
    def kept(self) -> Mapping[str, Any] | None:
        """What `keep` was given for the connection this request will use; None: it gets a new one."""
        ...

    def keep(self, memory: Mapping[str, Any]) -> None:
        """Say that the answer is whole and its connection may serve the next request, with *memory* then.

        Heard only where the settings have the connection kept.
        """
        ...

    def repaired(self, what: str, **facts: Any) -> None:
        """Put a change that the provider made to the copy of the context into the log."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a dialect can carry."""

    tools: bool = False
    thinking: bool = False
    streaming: bool = True


class Provider(EndpointHooks):
    """Base of all dialects: the defaults. What it does about its servers beside requests is `EndpointHooks`.

    The defaults for a stream are strict: a stream that ends before `translate` produced a terminal event is
    a network fault, because a polite close is not a finished answer.
    """

    label: ClassVar[str] = ""
    path: ClassVar[str] = ""
    """Appended to the endpoint's URL."""
    framing: ClassVar[Framing] = "sse"
    """`"sse"` or `"ndjson"`."""
    capabilities: ClassVar[Capabilities] = Capabilities()
    timeout: ClassVar[Duration | None] = None
    connect_timeout: ClassVar[Duration | None] = None
    stuck_timeout: ClassVar[Duration | None] = None

    def __init_subclass__(cls, **more: Any) -> None:
        """Let an override of `decode` or `translate` be heard: the fast path below it is not used."""
        super().__init_subclass__(**more)
        depth = {
            hook: next(depth for depth, owner in enumerate(cls.__mro__) if hook in vars(owner))
            for hook in ("decode", "translate", "translate_all")
        }
        if min(depth["decode"], depth["translate"]) < depth["translate_all"]:
            cls.translate_all = Provider.translate_all  # type: ignore[method-assign]

    def __init__(self, url: str, io: ProviderIO) -> None:
        self.base_url: str = url.rstrip("/")
        self.io = io

    @property
    def url(self) -> str:
        """Where this request goes: the path before a query of the base URL, and once. Holds no credential."""
        base, mark, query = self.base_url.partition("?")
        base = base.rstrip("/").removesuffix(self.path)
        return f"{base}{self.path}{mark}{query}"

    def request(self, context: Sequence[Message], io: ProviderIO) -> tuple[Mapping[str, Any], Any]:
        """Return (headers, body) for *context*: valid messages only, records and empty ones left out.

        The messages belong to the caller: read, never changed. The body is JSON data, or None. By default a
        TypeError: a dialect has to have it.
        """
        raise TypeError(f"provider {self.name or type(self).__name__!r} has no request()")

    def decode(self, frame: bytes) -> Any:
        """Return the native message in *frame*, by default its JSON value. ValueError: unreadable."""
        return decode_json(frame)

    def new_state(self) -> Any:
        """Return what `translate` keeps between frames of one answer."""
        return {}

    def translate(self, native: Any, state: Any, io: ProviderIO) -> Events:
        """Return the events that *native* stands for. ValueError: it makes no sense.

        By default a TypeError: a dialect has to have it.
        """
        raise TypeError(f"provider {self.name or type(self).__name__!r} has no translate()")

    def translate_all(self, frames: Iterable[bytes], state: Any, io: ProviderIO) -> Events:
        """Return the events of all *frames* that one read brought, lazily, in order.

        By default what `decode` and `translate` make of each. A dialect overrides it to spend less on its
        commonest frame; lazily, because a callback may stop the request between two of the events.
        """
        for frame in frames:
            yield from self.translate(self.decode(frame), state, io)

    def ending(self, state: Any) -> bool:
        """Tell whether the answer is complete and only late usage may follow (at most 1 s is granted)."""
        return False

    def finish(self, state: Any, io: ProviderIO) -> Events:
        """Return the last events, at the end of the stream; without a terminal one it was cut."""
        return ()

    def abandon(self, state: Any, io: ProviderIO) -> Events:
        """Return what is still held back (half a surrogate pair, usage) when the answer is cut short.

        Content events only; the terminal event is made by the caller. `usage` known so far goes into
        an attribute or key `usage` of *state*.
        """
        return ()

    def classify_error(self, error: Exception) -> ProviderError:
        """Return *error* (an `HttpStatusError`, or anything `open` raised) as a `ProviderError`."""
        return classify_error(error, self.io.endpoint_name)

    def fallback(self, error: ProviderError) -> type[Provider] | None:
        """Return the class that makes the same request once more, another way, after *error*; None: none.

        Only for a request that the provider has not accepted, and only where a setting asks for it.
        """
        return None

    def report_plan_usage(self, headers: Mapping[str, str], io: ProviderIO) -> None:
        """Read rate limits from response headers into `io.set_plan_usage`; nothing by default."""


_P = TypeVar("_P", bound=type)


def below(url: str, path: str) -> str:
    """Return *path* below the base *url*, whose query, if it has one, stays at the end."""
    base, mark, query = url.partition("?")
    return f"{base.rstrip('/')}{path}{mark}{query}"


def define_provider(cls: _P | None = None, /, *, name: str | None = None, dialect: str | None = None) -> Any:
    """Complete a plug-in class with the defaults of *dialect*; usable as a decorator.

    Args:
      cls: a class with `request` and `translate`, or whatever part of a known dialect it replaces.
      name: registry key; by default the class's own `name`.
      dialect: a built-in dialect to inherit from (`"chat"`); None: the bare defaults of `Provider`.

    Raises:
      TypeError: not a class, no usable name, or a hook that breaks the contract; the text names it.
      ValueError: an unknown *dialect*.
    """
    if cls is None:
        return lambda found: define_provider(found, name=name, dialect=dialect)
    if not isinstance(cls, type):
        raise TypeError(f"a provider is a class, not {cls!r}")
    key = name or getattr(cls, "name", None)
    if not isinstance(key, str) or not key.strip():
        raise TypeError(f"provider {cls.__name__} has no name: give define_provider(name=...)")
    base = dialect_class(dialect)
    bases = (cls,) if issubclass(cls, base) else (cls, base)
    completed = type(cls.__name__, bases, {"name": key, "__module__": cls.__module__, "__doc__": cls.__doc__})
    check_provider(completed)
    return completed


REQUIRED = ("request", "translate")


def check_provider(cls: Any) -> None:
    """Raise TypeError, naming the hook, when *cls* can't serve as a provider."""
    if not isinstance(cls, type) or not issubclass(cls, Provider):
        raise TypeError(f"a provider is a subclass of aiio.providers.Provider, not {cls!r}")
    name: Any = cls.name
    if not isinstance(name, str) or not name.strip():
        raise TypeError(f"provider {cls.__name__} has no name (a non-empty string)")
    check_hooks(cls, Provider)
    for hook in REQUIRED:
        if getattr(cls, hook) is getattr(Provider, hook):
            raise TypeError(f"provider {cls.name!r} has no {hook}()")
    if cls.framing not in get_args(Framing):
        raise TypeError(
            f"provider {cls.name!r}: framing must be one of {get_args(Framing)}, not {cls.framing!r}"
        )
    if not isinstance(cls.capabilities, Capabilities):
        raise TypeError(
            f"provider {cls.name!r}: capabilities must be a Capabilities, not {cls.capabilities!r}"
        )


ALIASES = {"chat": "openai_chat", "responses": "openai_responses", "realtime": "openai_realtime"}
"""Short names of built-in dialects."""


def dialect_class(dialect: str | None) -> type[Provider]:
    """Return the class of a built-in dialect. ValueError: there is none of that name."""
    if dialect is None:
        return Provider
    where = BUILTIN_PROVIDERS.get(ALIASES.get(dialect, dialect))
    if where is None:
        raise ValueError(f"unknown dialect {dialect!r}; built in: {', '.join(sorted(BUILTIN_PROVIDERS))}")
    found: type[Provider] = load_object(where)
    return found


_fast = msgspec.json.Decoder()


def decode_json(data: bytes) -> Any:
    """Return the JSON value in *data*.

    What the fast decoder refuses (lone surrogates, NaN) goes to the standard library's. A number that is no
    finite one is None: it says nothing, and a message that held it could not be stored.

    Raises:
      ValueError: not JSON, not UTF-8, or nested too deep.
    """
    try:
        return _fast.decode(data)
    except (msgspec.DecodeError, RecursionError):
        try:
            return json.loads(
                data.decode("utf-8"),
                strict=False,  # raw control characters in strings
                parse_constant=lambda name: None,
                parse_float=_finite,
            )
        except RecursionError:
            raise ValueError("JSON nested too deep") from None


def _finite(number: str) -> float | None:
    value = float(number)
    return value if math.isfinite(value) else None
