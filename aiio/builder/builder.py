"""`ContextBuilder`: definitions compiled once, inputs made into messages as often as needed.

format      each definition makes one fragment of the input, an empty one too
transform   the caller's functions, in their order, over all fragments
check       sizes, and that no transform granted trust           -> `fragments`
plan        with budgets, additional messages, originals         -> `plan`
audit       against the originals, if there are any
assemble    merged, counted, held against the budget             -> `build`
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeAlias

from aiio.context.types import Message, MessageType

from .assemble import Counting, TokenCounter, assemble, check_size
from .audit import Grants, audit
from .errors import ContextBuildError, ContextDefinitionError, ContextErrorCode
from .fragments import ContextFragment, FragmentDefinition, Input, checked_budget
from .messages import USER_BLOCKS, CharUnit, foreign_block, read_messages
from .results import BuiltContext, ContextPlan, FragmentChange

Transform: TypeAlias = Callable[[tuple[ContextFragment, ...], Input], Iterable[ContextFragment]]
"""Returns the fragments that go on: fewer, in another order, changed by `dataclasses.replace`."""


class ContextBuilder(Generic[Input]):
    """Makes messages of inputs. Holds nothing of a request: any number of tasks and threads may share it.

    Made by `define_context_fragments`. Every method is a pure function of its arguments, as far as formats
    and transforms are; it keeps and changes nothing that it is given.
    """

    def __init__(
        self,
        definitions: Sequence[tuple[ContextFragment, FragmentDefinition[Input]]],
        transforms: Sequence[Transform[Input]],
        counting: Counting,
        max_input_chars: float,
        max_input_tokens: float,
    ) -> None:
        self._definitions = tuple(definitions)
        """Each with the fragment that it makes of nothing."""
        self._transforms = tuple(transforms)
        self._counting = counting
        self._max_input_chars = max_input_chars
        self._max_input_tokens = max_input_tokens

    def originals(self, input: Input) -> tuple[ContextFragment, ...]:
        """Return the fragments of *input* before transforms, sizes unchecked: what an audit compares with.

        Raises:
          ContextBuildError: FRAGMENT_FORMAT, FRAGMENT_TRUST_ROLE.
        """
        return tuple(_formatted(empty, definition, input) for empty, definition in self._definitions)

    def fragments(self, input: Input) -> tuple[ContextFragment, ...]:
        """Return the fragments of *input* after transforms; without any, one a definition, empty ones too.

        Raises:
          ContextBuildError: what `originals` says, FRAGMENT_TRANSFORM, FRAGMENT_TRUST_RAISED,
            FRAGMENT_TOO_LARGE.
        """
        fragments, _ = self._transformed(input)
        return fragments

    def plan(
        self,
        *,
        input: Input,
        max_input_chars: float | None = None,
        max_input_tokens: float | None = None,
        additional_messages: Sequence[Mapping[str, Any]] = (),
        original_fragments: Sequence[ContextFragment] | None = None,
        mutable_fragment_ids: Iterable[str] = (),
    ) -> ContextPlan:
        """Return what `build` would assemble: without the audit, and whatever the budget of the whole.

        Args:
          input: what the formats get.
          max_input_chars, max_input_tokens: instead of the compiled ones (None); `math.inf`: unbounded.
          additional_messages: messages of the user (images, say) that come last, as they are; text counts.
          original_fragments: trusted originals that the fragments are compared with; never sent.
          mutable_fragment_ids: fragments whose value may differ from the original; without originals ignored.

        Raises:
          ContextBuildError: what `fragments` says, ADDITIONAL_MESSAGE.
          TypeError, ValueError: a budget, the originals or the ids are not valid.
        """
        if isinstance(mutable_fragment_ids, str):
            raise TypeError(f"mutable_fragment_ids is a list of ids, not {mutable_fragment_ids!r}")
        chars = self._max_input_chars if max_input_chars is None else max_input_chars
        tokens = self._max_input_tokens if max_input_tokens is None else max_input_tokens
        chars, tokens = checked_budget("max_input_chars", chars), checked_budget("max_input_tokens", tokens)
        fragments, changes = self._transformed(input)
        originals = None
        if original_fragments is not None:
            originals = tuple(_settled(original, "original_fragments") for original in original_fragments)
        return ContextPlan(
            fragments=fragments,
            max_input_chars=chars,
            max_input_tokens=tokens,
            additional_messages=_additional(additional_messages),
            original_fragments=originals,
            mutable_fragment_ids=frozenset(mutable_fragment_ids),
            changes=changes,
        )

    def build(
        self,
        *,
        input: Input,
        max_input_chars: float | None = None,
        max_input_tokens: float | None = None,
        additional_messages: Sequence[Mapping[str, Any]] = (),
        original_fragments: Sequence[ContextFragment] | None = None,
        mutable_fragment_ids: Iterable[str] = (),
    ) -> BuiltContext:
        """Return the messages for *input*, within the budget, with their usage. Arguments as for `plan`.

        Nothing is ever cut off to fit: what is too large raises, and what is exactly as large passes.

        Raises:
          ContextBuildError: what `plan` says, FRAGMENT_SET_CHANGED, FRAGMENT_MUTATED, UNKNOWN_FRAGMENT,
            INPUT_TOO_LARGE, INPUT_TOO_MANY_TOKENS, TOKEN_COUNTER.
          TypeError, ValueError: as for `plan`.
        """
        plan = self.plan(
            input=input,
            max_input_chars=max_input_chars,
            max_input_tokens=max_input_tokens,
            additional_messages=additional_messages,
            original_fragments=original_fragments,
            mutable_fragment_ids=mutable_fragment_ids,
        )
        if plan.original_fragments is not None:
            audit(plan.fragments, plan.original_fragments, plan.mutable_fragment_ids)
        return assemble(plan, self._counting)

    def _transformed(self, input: Input) -> tuple[tuple[ContextFragment, ...], tuple[FragmentChange, ...]]:
        fragments = self.originals(input)
        sizes = self._sizes(fragments)
        changes: list[FragmentChange] = []
        if self._transforms:
            grants = Grants(fragments)
            for transform in self._transforms:
                fragments = _applied(transform, fragments, input)
                were, sizes = sizes, self._sizes(fragments)
                changes += _changes(were, sizes, _name(transform))
            grants.check(fragments)
        for fragment in fragments:
            check_size(fragment, sizes[fragment.id])
        return fragments, tuple(changes)

    def _sizes(self, fragments: Iterable[ContextFragment]) -> dict[str, int]:
        return {fragment.id: self._counting.chars(fragment) for fragment in fragments}


def define_context_fragments(
    definitions: Sequence[FragmentDefinition[Input] | Mapping[str, Any]],
    *,
    max_input_chars: float = math.inf,
    max_input_tokens: float = math.inf,
    transforms: Sequence[Transform[Input]] = (),
    token_counter: TokenCounter | None = None,
    char_unit: CharUnit | str = CharUnit.CODE_POINTS,
) -> ContextBuilder[Input]:
    """Return a builder for *definitions*, in whose order messages will come.

    Args:
      definitions: `FragmentDefinition`s, or dicts with their fields.
      max_input_chars: of all text that is sent; an int, or infinity.
      max_input_tokens: the same in tokens: estimated, unless there is a *token_counter*.
      transforms: sync functions `(fragments, input) -> fragments`, applied in order after all formats.
      token_counter: returns the tokens of a text. With it tokens are counted even without a budget.
      char_unit: code points, or `"utf16"` units.

    Raises:
      ContextDefinitionError: definitions, budgets, or functions that are not valid; the text says which.
    """
    if not isinstance(definitions, list | tuple) or not definitions:
        raise ContextDefinitionError(f"definitions must be a list with at least one, not {definitions!r}")
    compiled: list[tuple[ContextFragment, FragmentDefinition[Input]]] = []
    taken: set[str] = set()
    for at, given in enumerate(definitions):
        empty, definition = _compiled(given, at)
        if empty.id in taken:
            raise ContextDefinitionError(f"fragment {empty.id!r} is defined twice", id=empty.id, field="id")
        taken.add(empty.id)
        compiled.append((empty, definition))
    for at, transform in enumerate(transforms):
        _require_sync(transform, f"transforms[{at}]")
    if token_counter is not None:
        _require_sync(token_counter, "token_counter")
    try:
        budgets = (
            checked_budget("max_input_chars", max_input_chars, least=1),
            checked_budget("max_input_tokens", max_input_tokens, least=1),
        )
        counting = Counting(unit=CharUnit(char_unit), tokens=token_counter)
    except (TypeError, ValueError) as exc:
        raise ContextDefinitionError(str(exc)) from exc
    return ContextBuilder(compiled, transforms, counting, *budgets)


_FIELDS = {field.name: field for field in dataclasses.fields(FragmentDefinition)}
_REQUIRED = [name for name, field in _FIELDS.items() if field.default is dataclasses.MISSING]


def _compiled(given: object, at: int) -> tuple[ContextFragment, FragmentDefinition[Any]]:
    """Return the fragment that a definition makes of nothing, and the definition."""
    definition: FragmentDefinition[Any]
    if isinstance(given, FragmentDefinition):
        definition = given
    elif isinstance(given, Mapping):
        if unknown := given.keys() - _FIELDS:
            names = ", ".join(sorted(map(repr, unknown)))
            raise ContextDefinitionError(f"definitions[{at}]: unknown fields: {names}")
        if missing := [name for name in _REQUIRED if name not in given]:
            raise ContextDefinitionError(f"definitions[{at}]: {missing[0]} is missing", field=missing[0])
        definition = FragmentDefinition(**given)
    else:
        raise ContextDefinitionError(f"definitions[{at}]: a definition is a dict, not {given!r}")
    given_id: object = definition.id
    id = given_id if isinstance(given_id, str) else None
    _require_sync(definition.format, f"definitions[{at}] ({id!r}): format", id)
    fixed = {name: getattr(definition, name) for name in _FIELDS if name != "format"}
    try:
        return ContextFragment(**fixed, content=""), definition
    except ContextBuildError as exc:
        raise ContextDefinitionError(str(exc), code=exc.code, id=id, field="role") from exc
    except (TypeError, ValueError) as exc:
        field = next((name for name in fixed if str(exc).startswith(f"{name} ")), None)
        raise ContextDefinitionError(f"definitions[{at}] ({id!r}): {exc}", id=id, field=field) from exc


def _require_sync(function: object, what: str, id: str | None = None) -> None:
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ContextDefinitionError(f"{what} must be a sync function, not {function!r}", id=id)


def _formatted(
    empty: ContextFragment, definition: FragmentDefinition[Input], input: Input
) -> ContextFragment:
    """Return *empty* filled with what its format makes of *input*. ContextBuildError: nothing valid."""
    code = ContextErrorCode.FRAGMENT_FORMAT
    try:
        value: Any = definition.format(input)
    except Exception as exc:
        text = f"fragment {empty.id!r}: format raised {type(exc).__name__}: {exc}"
        raise ContextBuildError(code, text, id=empty.id) from exc
    if value is None:
        return empty
    if isinstance(value, str):
        return dataclasses.replace(empty, content=value)
    if isinstance(value, Mapping) and value.keys() == {"messages"} and value["messages"] is not None:
        return dataclasses.replace(empty, content=None, messages=value["messages"])
    if inspect.iscoroutine(value):
        value.close()  # nobody will await it
    text = f"fragment {empty.id!r}: format must return text, {{'messages': [...]}} or None, not {value!r:.80}"
    raise ContextBuildError(code, text, id=empty.id)


def _applied(
    transform: Transform[Input], fragments: tuple[ContextFragment, ...], input: Input
) -> tuple[ContextFragment, ...]:
    """Return what *transform* makes of *fragments*, checked again and copied."""
    code, name = ContextErrorCode.FRAGMENT_TRANSFORM, _name(transform)
    try:
        after = tuple(_settled(fragment, f"what {name} returns") for fragment in transform(fragments, input))
    except ContextBuildError:
        raise  # it names the fragment
    except Exception as exc:
        text = f"transform {name} raised {type(exc).__name__}: {exc}"
        raise ContextBuildError(code, text) from exc
    seen: set[str] = set()
    for fragment in after:
        if (id := fragment.id) in seen:
            raise ContextBuildError(code, f"fragment {id!r}: transform {name} returned it twice", id=id)
        seen.add(id)
    return after


def _settled(fragment: object, what: str) -> ContextFragment:
    """Return a copy of *fragment*, checked anew: the dicts in it may have been changed."""
    if not isinstance(fragment, ContextFragment):
        raise TypeError(f"{what} must be ContextFragments, not {fragment!r:.80}")
    return dataclasses.replace(fragment)


def _changes(were: Mapping[str, int], are: Mapping[str, int], transform: str) -> Iterable[FragmentChange]:
    for id in dict.fromkeys([*were, *are]):
        before, after = were.get(id, 0), are.get(id)
        if before != after:
            yield FragmentChange(id=id, transform=transform, before=before, after=after)


def _name(function: object) -> str:
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _additional(values: Collection[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Return copies of the additional messages. ContextBuildError: ADDITIONAL_MESSAGE."""
    code, what = ContextErrorCode.ADDITIONAL_MESSAGE, "additional_messages"
    try:
        messages = read_messages(values, what)
    except (TypeError, ValueError) as exc:
        raise ContextBuildError(code, str(exc)) from exc
    for at, message in enumerate(messages):
        if message["type"] != MessageType.USER:
            kind = MessageType(message["type"]).name.lower()
            raise ContextBuildError(code, f"{what}[{at}] is a {kind} message; only a user's can be added")
        if (found := foreign_block(message, USER_BLOCKS)) is not None:
            raise ContextBuildError(code, f"{what}[{at}] has {found}; a user sends text and files")
    return tuple(messages)
