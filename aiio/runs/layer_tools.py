"""What layers provide, as tools of the model; and the names of tools as every provider takes them.

A function that a layer provides is the tool `layer/fn`. It is called with the layer's state before its
arguments, in trio's thread, as the hooks of its layer are.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from aiio.context.types import Block, ContentType, Message, MessageType
from aiio.env.tools import Tool, ToolCatalog

if TYPE_CHECKING:
    from .layer_set import LayerSet
    from .layers import ContextLayer

LONGEST = 64
"""Characters of a tool's name that every provider takes."""

_CONTEXT = "context"


@dataclass(frozen=True, slots=True)
class NewState:
    """What a provided function returns to write its layer's state; None clears it."""

    state: Any
    result: Any = None
    """What the caller gets."""


def check_provided(layer: str, name: str, given: Any) -> None:
    """Check one entry of what a layer provides.

    TypeError: it is neither a `property` nor a function of the state whose arguments can be described.
    ValueError: a name that can't be a tool's.
    """
    if not isinstance(given, property):
        described(f"{layer}/{name}", given)


def described(full_name: str, fn: Callable[..., Any]) -> Tool:
    """Return the tool that a provided function is; calling it is for `layer_tools` to arrange.

    Args:
      full_name: `layer/fn`.
      fn: its first parameter is the state. `fn.aiio_tool` may hold arguments of `ToolCatalog.register`:
        `schema`, or `secret` for what models are not to call.

    Raises:
      TypeError, ValueError: as `check_provided`.
    """
    name = full_name.rpartition("/")[2]
    if not callable(fn):
        raise TypeError(f"{full_name!r} is neither a function nor a property: {fn!r}")
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError) as exc:
        raise TypeError(f"{full_name!r}: {exc}") from exc
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise TypeError(f"the function {full_name!r} does not take the layer's state first")
    published = [one for one in parameters[1:] if one.name != _CONTEXT]

    async def described_only(**arguments: Any) -> None: ...

    shape: Any = described_only
    shape.__doc__ = inspect.getdoc(fn)
    shape.__wrapped__ = inspect.unwrap(fn)  # where the names in annotations are looked up
    shape.__signature__ = inspect.Signature(published)
    hints = getattr(fn, "__annotations__", {})
    shape.__annotations__ = {one.name: hints[one.name] for one in published if one.name in hints}
    tool = ToolCatalog().register(shape, name=name, **getattr(fn, "aiio_tool", {}))
    return replace(tool, name=full_name)


def takes_context(fn: Callable[..., Any]) -> bool:
    """Tell whether a provided function wants to know its run: it has a parameter `context`."""
    return _CONTEXT in inspect.signature(fn).parameters


def layer_tools(layers: LayerSet) -> dict[str, Tool]:
    """Return the tools that the layers at work provide, by name, in the order of the layers."""
    tools: dict[str, Tool] = {}
    for layer in layers.ordered:
        for name, fn in layer.provides.items():
            if not isinstance(fn, property):
                tool = described(f"{layer.id}/{name}", fn)
                tool.fn = _caller(tool.fn, partial(layers.use, layer, fn))
                tools[tool.name] = tool
    return tools


def _caller(shape: Callable[..., Any], use: Callable[..., Any]) -> Callable[..., Any]:
    async def call(**arguments: Any) -> Any:
        found = use(**arguments)
        return await found if inspect.isawaitable(found) else found

    made: Any = call
    made.__signature__ = inspect.signature(shape)
    return call


class Provided:
    """What one layer provides: `context.context["notes"].size` reads, `.add(...)` calls, with its state."""

    def __init__(self, layers: LayerSet, layer: ContextLayer) -> None:
        self._layers = layers
        self._layer = layer

    def __getattr__(self, name: str) -> Any:
        try:
            given = self._layer.provides[name]
        except KeyError:
            raise AttributeError(f"layer {self._layer.id!r} provides no {name!r}") from None
        if isinstance(given, property) and given.fget is not None:
            return given.fget(self._layers.states.get(self._layer.id))
        return partial(self._layers.use, self._layer, given)


class WireNames:
    """Names of tools in letters, digits, `_` and `-`, and the way back.

    The same names, learnt in the same order, always become the same.
    """

    def __init__(self) -> None:
        self._wire: dict[str, str] = {}
        self._own: dict[str, str] = {}

    def learn(self, names: Iterable[str]) -> None:
        """Take in *names*; those that are fine as they are keep their name, whatever the others become."""
        for name in sorted(names, key=lambda name: _safe(name) != name):  # sorted() is stable
            self.wire(name)

    def wire(self, name: str) -> str:
        """Return *name* as it goes over the wire."""
        if name not in self._wire:
            wire, number = _safe(name), 1
            while wire in self._own:
                number += 1
                mark = f"_{number}"
                wire = _safe(name)[: LONGEST - len(mark)] + mark
            self._wire[name] = wire
            self._own[wire] = name
        return self._wire[name]

    def own(self, wire: str) -> str:
        """Return the name that goes over the wire as *wire*."""
        return self._own.get(wire, wire)

    def sent(self, messages: Sequence[Message]) -> list[Message]:
        """Return *messages* with the names of calls and results as they go over the wire."""
        return [self._renamed(message, self.wire) for message in messages]

    def received(self, message: Message) -> Message:
        """Return an answer with the names of its calls as they are here."""
        return self._renamed(message, self.own)

    def _renamed(self, message: Message, name_of: Callable[[str], str]) -> Message:
        if message["type"] == MessageType.TOOL_RESULT and isinstance(message.get("name"), str):
            return {**message, "name": name_of(message["name"])}
        if message["type"] != MessageType.ASSISTANT:
            return message
        content = [_renamed_call(block, name_of) for block in message["content"]]
        same = all(one is other for one, other in zip(content, message["content"], strict=True))
        return message if same else {**message, "content": content}


def _renamed_call(block: Block, name_of: Callable[[str], str]) -> Block:
    if block.get("type") != ContentType.TOOL_CALL or not isinstance(block.get("name"), str):
        return block
    name = name_of(block["name"])
    return block if name == block["name"] else {**block, "name": name}


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:LONGEST] or "_"
