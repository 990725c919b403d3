"""What every checkpoint store must do, for the tests of a store of your own."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

import trio
from trio.testing import assert_checkpoints

from aiio.runs.code_steps import run_code
from aiio.runs.errors import RunError
from aiio.runs.harness import Harness
from aiio.runs.looping import loop
from aiio.runs.stores import CheckpointStore
from aiio.runs.until import max_steps

Rule: TypeAlias = Callable[[CheckpointStore], Awaitable[None]]

_ODD_KEYS = [
    "a",
    "execution:1:snapshot",
    "with/slash",
    "with space",
    "ä日",
    "..",
    "%41",
    "A",
    "UPPER",
    "x" * 100,
]


async def checkpoint_store_conformance(store: CheckpointStore) -> None:
    """Raise `AssertionError` if *store* breaks a rule of `aiio.runs.CheckpointStore`; say which, and how.

    The store must be empty; what the rules put into it is deleted again, as far as the store does that.

        import aiio.testing

        class MyStore:
            async def get(self, key): ...
            async def get_many(self, keys): ...
            async def put(self, key, value): ...
            async def delete(self, keys): ...
            async def keys(self, prefix): ...

        async def test_my_store_keeps_the_rules(tmp_path):
            await aiio.testing.checkpoint_store_conformance(MyStore(tmp_path))

    That values survive a crash can't be seen from inside a process: kill one, and look. Cancellation: what
    the rules have put into the store may stay there.
    """
    for name, rule in RULES.items():
        try:
            await rule(store)
        except AssertionError as exc:
            raise AssertionError(f"{type(store).__name__}: {inspect.getdoc(rule) or name} {exc}") from exc
        await store.delete(await store.keys(""))
        _same(await store.keys(""), [], "keys after all were deleted")


# -- the rules ---------------------------------------------------------------------------------------


async def what_is_put_is_got(store: CheckpointStore) -> None:
    """`get` returns what was put last under the key, None when nothing was."""
    _same(await store.get("k"), None, "a key that was never put")
    await store.put("k", b"\x00one")
    _same(await store.get("k"), b"\x00one", "what was put")
    await store.put("k", b"two")
    _same(await store.get("k"), b"two", "what was put over it")
    await store.put("empty", b"")
    _same(await store.get("empty"), b"", "an empty value")


async def a_value_is_a_copy(store: CheckpointStore) -> None:
    """What the caller does to a value afterwards does not change what is stored."""
    value = bytearray(b"one")
    await store.put("k", cast(bytes, value))
    value[:] = b"two"
    _same(await store.get("k"), b"one", "a value whose buffer was changed after its put")


async def keys_are_listed_by_prefix_and_sorted(store: CheckpointStore) -> None:
    """`keys` returns the keys that begin with exactly the prefix, sorted; no character is a pattern."""
    given = ["b:2", "a:10", "a:1", "a", "A:1", "a%:1", "a_:1"]
    for key in given:
        await store.put(key, b"")
    for prefix, expected in (
        ("a:", ["a:1", "a:10"]),
        ("a%", ["a%:1"]),
        ("a_", ["a_:1"]),
        ("none", []),
        ("", sorted(given)),
    ):
        _same(await store.keys(prefix), expected, f"keys({prefix!r})")


async def odd_keys_stay_apart(store: CheckpointStore) -> None:
    """Any text is a key, and two that differ are two: in case, in escapes, in slashes."""
    for key in _ODD_KEYS:
        await store.put(key, key.encode())
    _same(await store.get_many(_ODD_KEYS), {key: key.encode() for key in _ODD_KEYS}, "get_many of odd keys")
    _same(await store.keys(""), sorted(_ODD_KEYS), "keys")


async def get_many_leaves_out_what_is_missing(store: CheckpointStore) -> None:
    """`get_many` returns the keys that are there, and no others."""
    await store.put("a", b"1")
    _same(
        await store.get_many(["a", "b"]), {"a": b"1"}, "get_many of a key that is there and one that is not"
    )
    _same(await store.get_many([]), {}, "get_many of nothing")


async def delete_removes_and_does_not_mind_a_missing_key(store: CheckpointStore) -> None:
    """`delete` removes the keys given, and no others; a missing one is fine."""
    for key in ("a", "b", "ab"):
        await store.put(key, b"1")
    await store.delete(["a", "missing"])
    await store.delete([])
    _same(await store.keys(""), ["ab", "b"], "keys after delete(['a', 'missing'])")
    _same(await store.get("a"), None, "a key that was deleted")


async def puts_at_the_same_time_are_all_there(store: CheckpointStore) -> None:
    """Puts at the same time are all there; of several under one key one is, whole."""
    async with trio.open_nursery() as nursery:
        for number in range(30):
            nursery.start_soon(store.put, f"k{number:02}", bytes([number]))
            nursery.start_soon(store.put, "same", bytes([number]) * 1000)
    found = await store.get_many([f"k{number:02}" for number in range(30)])
    _same(found, {f"k{number:02}": bytes([number]) for number in range(30)}, "30 keys put at once")
    same = await store.get("same") or b""
    _same((len(same), len(set(same))), (1000, 1), "length and different bytes of a key put 30 times at once")


async def operations_are_checkpoints(store: CheckpointStore) -> None:
    """Every operation lets other tasks run, and can be cancelled."""
    await store.put("a", b"1")
    operations: list[Callable[[], Awaitable[object]]] = [
        lambda: store.put("a", b"1"),
        lambda: store.get("a"),
        lambda: store.get_many(["a"]),
        lambda: store.keys(""),
        lambda: store.delete(["a"]),
    ]
    for operation, name in zip(operations, ("put", "get", "get_many", "keys", "delete"), strict=True):
        try:
            with assert_checkpoints():
                await operation()
        except AssertionError:
            raise AssertionError(f"{name} did not") from None


async def a_run_is_resumed_from_it(store: CheckpointStore) -> None:
    """A run that failed goes on where it was, with its state; once forgotten, nothing of it is left."""
    ran: list[int] = []
    broken = [True]

    def work(input: int, context: Any) -> int:
        if input == 3 and broken:
            raise ValueError("crash")
        ran.append(input)
        return input + 1

    step = loop("l", run_code("w", work), max_steps(5))
    harness = Harness(store=store)
    context = harness.create_context(state={"kept": True})
    try:
        await harness.run(step, 0, context=context)
    except RunError:
        broken.clear()
    _same(broken, [], "the run failed, as it was to")
    resumed = await Harness(store=store).restore(context.id)
    if resumed is None:
        raise AssertionError("there is nothing to restore")
    _same(await resumed.harness.run(step, 0, context=resumed), 5, "the output of the resumed run")
    _same(ran, [0, 1, 2, 3, 4], "what ran, each once")
    _same(resumed.state, {"kept": True}, "the state")
    await harness.clear_checkpoint(context.id)
    _same(await store.keys(""), [], "keys after the run was forgotten")


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        what_is_put_is_got,
        a_value_is_a_copy,
        keys_are_listed_by_prefix_and_sorted,
        odd_keys_stay_apart,
        get_many_leaves_out_what_is_missing,
        delete_removes_and_does_not_mind_a_missing_key,
        puts_at_the_same_time_are_all_there,
        operations_are_checkpoints,
        a_run_is_resumed_from_it,
    )
}
"""By name; each wants an empty store."""


def _same(found: object, expected: object, what: str) -> None:
    """Raise `AssertionError` if *found* is not *expected*; also where Python leaves `assert` out."""
    if found != expected:
        raise AssertionError(f"{what}: expected {expected!r}, got {found!r}")
