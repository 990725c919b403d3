"""Anchoring: the prefix stays byte for byte the same while a layer churns, and is made anew when it must."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from aiio.runs.anchoring import Bands, CachePolicy, Lineage, Reanchor
from aiio.runs.items import Item, create_message, estimate_item_tokens, new_item
from aiio.runs.layer_set import LayerOutput
from aiio.runs.layers import ContextLayer, Placement

STEADY = ContextLayer(id="steady", slot=1)
CHURN = ContextLayer(id="churn", slot=2)
BIG = "x" * 8000


async def no_delta(layer: ContextLayer, before: Sequence[Item], now: Sequence[Item]) -> str | None:
    return None


def out(layer: ContextLayer, *texts: str, wrote: bool = False, items: Any = None) -> LayerOutput:
    made = tuple(items or (create_message(text, "developer") for text in texts))
    return LayerOutput(layer=layer, items=made, tokens=estimate_item_tokens(made), wrote_state=wrote)


class Run:
    """Assembles again and again."""

    def __init__(self, **policy: Any) -> None:
        self.lineage = Lineage("t", CachePolicy(**policy))
        self.delta: Any = no_delta

    async def __call__(self, *outputs: LayerOutput, instructions: str = "be kind", cached: Any = ()) -> Bands:
        bands = await self.lineage.assemble(outputs, instructions, self.delta)
        if cached != ():
            self.lineage.judge({"cached_tokens": cached} if not isinstance(cached, dict) else cached)
        return bands


def reason(bands: Bands) -> str | None:
    assert bands.epoch is not None
    return bands.epoch.reanchor_reason


def text(bands: Bands) -> str:
    assert bands.update is not None
    return str(bands.update["content"][0]["text"])


async def test_the_prefix_is_identical_across_30_turns_while_a_layer_churns() -> None:
    run = Run()
    first = await run(out(STEADY, "facts"), out(CHURN, "0"))
    assert reason(first) == "cold-start"
    assert first.update is None
    for turn in range(1, 30):
        bands = await run(out(STEADY, "facts"), out(CHURN, str(turn)))
        assert bands.anchor == first.anchor
        assert all(one is other for one, other in zip(bands.anchor, first.anchor, strict=True))
        assert text(bands) == (
            f'<context_updates epoch="t#1">\n<update layer="churn" action="replace">\n{turn}\n</update>\n'
            "</context_updates>"
        )
        assert reason(bands) is None
        assert bands.epoch is not None
        assert bands.epoch.age == turn + 1
    churn, steady = bands.entries
    assert (churn.changed, churn.churn_rate, churn.served, churn.items) == (
        True,
        1.0,
        "pinned",
        first.anchor[1:],
    )
    assert (steady.changed, steady.churn_rate) == (False, 0.0)
    assert churn.rebill_tokens == 29 * estimate_item_tokens(first.anchor)


async def test_ids_statuses_and_the_order_of_keys_are_no_change() -> None:
    run = Run()
    item = new_item("openrouter:x", data={"a": 1, "b": [{"c": 1, "d": 2}]})
    await run(out(STEADY, items=[item]))
    same = {
        "status": "failed",
        "id": "other",
        "data": {"b": [{"d": 2, "c": 1}], "a": 1},
        "type": item["type"],
    }
    assert (await run(out(STEADY, items=[same]))).update is None


async def test_retract_repeats_and_an_addition_is_told_mid_epoch() -> None:
    run = Run()
    await run(out(STEADY, "facts"), out(CHURN, "x"))
    for _ in range(2):
        bands = await run(out(STEADY, "facts"))
        assert '<update layer="churn" action="retract">' in text(bands)
    added = ContextLayer(id="new")
    bands = await run(out(STEADY, "facts"), out(CHURN, "x"), out(added, "hello"))
    assert text(bands).count("<update ") == 1
    assert '<update layer="new" action="add">\nhello\n' in text(bands)
    assert run.lineage._churn["new"].observed == run.lineage._churn["new"].changed == 1


async def test_a_layer_that_wrote_state_or_is_placed_live_is_live() -> None:
    run = Run()
    placed = ContextLayer(id="placed", placement=Placement.LIVE)
    bands = await run(out(STEADY, "facts"), out(CHURN, "x", wrote=True), out(placed, "y"))
    assert [item["content"][0]["text"] for item in bands.live] == ["x", "y"]
    assert [(entry.layer_id, entry.placement, entry.served) for entry in bands.entries] == [
        ("churn", "live", "fresh"),
        ("placed", "live", "fresh"),
        ("steady", "anchor", "fresh"),
    ]
    moved = await run(out(STEADY, "facts", wrote=True), out(CHURN, "x", wrote=True))
    assert 'layer="steady" action="retract"' in text(moved)  # what is pinned is served all the same
    assert moved.anchor == bands.anchor


async def test_other_instructions_and_age_begin_an_epoch() -> None:
    run = Run(max_epoch_assemblies=2)
    await run(out(STEADY, "a"))
    assert reason(await run(out(STEADY, "a"), instructions="other")) == "instructions-changed"
    assert reason(await run(out(STEADY, "a"), instructions="other")) is None
    assert reason(await run(out(STEADY, "a"), instructions="other")) == "max-age"
    assert run.lineage.epoch_id == "t#3"


async def test_pressure_reanchors_with_no_update_message() -> None:
    run = Run()
    await run(out(CHURN, "small"))
    bands = await run(out(CHURN, BIG))
    assert (reason(bands), bands.update) == ("delta-pressure", None)
    assert bands.anchor[0]["content"][0]["text"] == BIG
    assert run.lineage._churn["churn"].changed == 0.5  # it was counted, and decayed


async def test_a_layers_own_words_are_preferred_and_what_can_not_be_described_overflows() -> None:
    run = Run()

    async def words(layer: ContextLayer, before: Sequence[Item], now: Sequence[Item]) -> str | None:
        return f"{layer.id}: {len(before)} to {len(now)}"

    run.delta = words
    await run(out(CHURN, "a"))
    assert "\nchurn: 1 to 2\n" in text(await run(out(CHURN, "b", "c")))
    run.delta = no_delta
    mute = new_item("openrouter:x", data={})
    assert reason(await run(out(CHURN, items=[mute]))) == "delta-overflow"
    assert reason(await run(out(CHURN, items=[mute]), out(STEADY, items=[mute]))) == Reanchor.OVERFLOW


async def test_a_churning_layer_goes_live_at_the_next_epoch_and_comes_back_when_calm() -> None:
    run = Run(max_epoch_assemblies=4)
    for turn in range(4):
        await run(out(STEADY, "a"), out(CHURN, str(turn)))
    bands = await run(out(STEADY, "a"), out(CHURN, "5"))
    assert [entry.placement for entry in bands.entries] == ["live", "anchor"]
    churn = run.lineage._churn["churn"]
    assert (churn.observed, churn.changed) == (1.5, 1.5)  # decayed by half
    churn.observed, churn.changed = 8, 1
    for turn in range(4):
        bands = await run(out(STEADY, "a"), out(CHURN, str(turn)))
    assert reason(bands) == "max-age"
    assert [entry.placement for entry in bands.entries] == ["anchor", "anchor"]
    churn.observed, churn.changed = 8, 3  # in between: it stays where it is
    for _ in range(4):
        bands = await run(out(STEADY, "a"), out(CHURN, "3"))
    assert [entry.placement for entry in bands.entries] == ["anchor", "anchor"]


@pytest.mark.parametrize(
    ("usage", "misses", "blind"),
    [
        ({}, 0, True),
        ({"cached_tokens": 0, "cache_write_tokens": 50}, 0, False),
        ({"cached_tokens": 5000}, 0, False),
        ({"cached_tokens": 0}, 1, False),
    ],
)
async def test_what_the_provider_says_is_judged_once_per_assembly(
    usage: Any, misses: int, blind: bool
) -> None:
    run = Run()
    await run(out(STEADY, BIG), cached=0)
    assert run.lineage.misses == 0  # too young
    await run(out(STEADY, BIG))
    for _ in range(2):  # a steering retry is not judged again
        run.lineage.judge(usage)
    assert (run.lineage.misses, run.lineage.blind) == (misses, blind)


async def test_a_miss_reanchors_and_the_third_in_a_row_is_blind() -> None:
    run = Run()
    reasons: list[str | None] = [reason(await run(out(STEADY, BIG), cached=0)) for _ in range(9)]
    assert reasons == ["cold-start", None, "cache-miss", None, "cache-miss", None, None, None, None]
    assert run.lineage.blind
    await run(out(STEADY, BIG), cached=5000)
    assert (run.lineage.misses, run.lineage.blind) == (0, False)
