"""Anchoring: the prefix stays byte for byte the same while a layer churns, and is made anew when it must."""

from __future__ import annotations

from typing import Any

import pytest

from aiio.runs.anchoring import Bands, CachePolicy, Lineage, Reanchor, _Churn
from aiio.runs.items import create_message, estimate_item_tokens, new_item
from aiio.runs.layers import ContextLayer, Placement
from aiio.runs.recall import LayerOutput

STEADY = ContextLayer(id="steady", slot=1)
CHURN = ContextLayer(id="churn", slot=2)
BIG = "x" * 8000


async def no_delta(before: LayerOutput, now: LayerOutput) -> str | None:
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


async def test_B12_the_prefix_is_identical_across_30_turns_while_a_layer_churns() -> None:
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


async def test_B12_ids_statuses_and_the_order_of_keys_are_no_change() -> None:
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


async def test_B12_retract_repeats_and_an_addition_is_told_mid_epoch() -> None:
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


async def test_B12_a_layer_that_wrote_state_or_is_placed_live_is_live() -> None:
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


async def test_B12_other_instructions_and_age_begin_an_epoch() -> None:
    run = Run(max_epoch_assemblies=2)
    await run(out(STEADY, "a"))
    assert reason(await run(out(STEADY, "a"), instructions="other")) == "instructions-changed"
    assert reason(await run(out(STEADY, "a"), instructions="other")) is None
    assert reason(await run(out(STEADY, "a"), instructions="other")) == "max-age"
    assert run.lineage.epoch_id == "t#3"


async def test_B12_pressure_reanchors_with_no_update_message() -> None:
    run = Run()
    await run(out(CHURN, "small"))
    bands = await run(out(CHURN, BIG))
    assert (reason(bands), bands.update) == ("delta-pressure", None)
    assert bands.anchor[0]["content"][0]["text"] == BIG
    assert run.lineage._churn["churn"].changed == 0.5  # it was counted, and decayed


async def test_B12_a_layers_own_words_are_preferred_and_what_can_not_be_described_overflows() -> None:
    run = Run()

    async def words(before: LayerOutput, now: LayerOutput) -> str | None:
        return f"{now.layer.id}: {len(before.items)} to {len(now.items)}"

    run.delta = words
    await run(out(CHURN, "a"))
    assert "\nchurn: 1 to 2\n" in text(await run(out(CHURN, "b", "c")))
    run.delta = no_delta
    mute = new_item("openrouter:x", data={})
    assert reason(await run(out(CHURN, items=[mute]))) == "delta-overflow"
    assert reason(await run(out(CHURN, items=[mute]), out(STEADY, items=[mute]))) == Reanchor.OVERFLOW


async def test_B12_a_churning_layer_goes_live_at_the_next_epoch_and_comes_back_when_calm() -> None:
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
async def test_B12_what_the_provider_says_is_judged_once_per_assembly(
    usage: Any, misses: int, blind: bool
) -> None:
    run = Run()
    await run(out(STEADY, BIG), cached=0)
    assert run.lineage.misses == 0  # too young
    await run(out(STEADY, BIG))
    for _ in range(2):  # a steering retry is not judged again
        run.lineage.judge(usage)
    assert (run.lineage.misses, run.lineage.blind) == (misses, blind)


async def test_B12_a_miss_reanchors_and_the_third_in_a_row_is_blind() -> None:
    run = Run()
    reasons: list[str | None] = [reason(await run(out(STEADY, BIG), cached=0)) for _ in range(9)]
    assert reasons == ["cold-start", None, "cache-miss", None, "cache-miss", None, None, None, None]
    assert run.lineage.blind
    await run(out(STEADY, BIG), cached=5000)
    assert (run.lineage.misses, run.lineage.blind) == (0, False)


async def test_B12_an_undescribable_change_counts_as_churn_so_that_its_layer_goes_live() -> None:
    run = Run()
    mute = ContextLayer(id="mute")
    number = iter(range(99))

    async def assembled() -> Bands:
        item = new_item("openrouter:x", data={"turn": next(number)})
        return await run(out(STEADY, "facts"), out(mute, items=[item]))

    reasons = [reason(await assembled()) for _ in range(3)]
    assert reasons == ["cold-start", "delta-overflow", "delta-overflow"]
    churn = run.lineage._churn["mute"]
    churn.observed = churn.changed = 3
    assert reason(await assembled()) == "delta-overflow"
    bands = await assembled()
    assert (reason(bands), bands.update) == (None, None)  # it is live now, and told as it is
    assert [entry.placement for entry in bands.entries] == ["live", "anchor"]


async def test_B12_pressure_comes_before_overflow() -> None:
    run = Run()
    mute = ContextLayer(id="mute")
    await run(out(CHURN, "small"), out(mute, "text"))
    bands = await run(out(CHURN, BIG), out(mute, items=[new_item("openrouter:x", data={})]))
    assert reason(bands) == "delta-pressure"


async def test_B13_a_pin_of_a_layer_that_left_has_an_entry_without_band_info() -> None:
    run = Run()
    first = await run(out(STEADY, "facts"), out(CHURN, "x"))
    for present, expected in (
        ({"steady", "churn"}, ("pinned", True, 1.0)),  # silent
        ({"steady"}, ("fresh", False, 0.0)),  # gone
    ):
        bands = await run.lineage.assemble([out(STEADY, "facts")], "be kind", no_delta, present=present)
        assert bands.anchor == first.anchor
        assert 'layer="churn" action="retract"' in text(bands)
        entry = bands.entries[0]
        assert (entry.layer_id, entry.placement, entry.items) == ("churn", "anchor", first.anchor[1:])
        assert (entry.served, entry.changed, entry.churn_rate) == expected
    assert bands.entries[1].served == "pinned"


async def test_B12_a_copy_of_a_lineage_goes_on_by_itself() -> None:
    run = Run()
    await run(out(STEADY, "a"), out(CHURN, "x"))
    await run(out(STEADY, "a"), out(CHURN, "y"))
    before = repr(run.lineage)
    other = run.lineage.copy()
    assert repr(other) == before
    await other.assemble([out(CHURN, "z")], "be kind", no_delta)
    await other.assemble([out(CHURN, BIG)], "others", no_delta)
    assert repr(run.lineage) == before != repr(other)


@pytest.mark.parametrize("rate", [0.2, 0.5])
async def test_B12_the_bounds_of_churn_belong_to_the_bands(rate: float) -> None:
    run = Run(max_epoch_assemblies=1)
    for start in (Placement.ANCHOR, Placement.LIVE):
        run.lineage._bands["churn"] = start
        run.lineage._churn.clear()
        await run(out(CHURN, "x"))
        churn = run.lineage._churn.setdefault("churn", _Churn())
        churn.observed, churn.changed = 10, 10 * rate
        bands = await run(out(CHURN, "x"))
        assert bands.entries[0].placement == ("anchor" if rate == 0.2 else "live")
        run.lineage._bands["churn"] = start
        churn.observed, churn.changed = 2, 2 * rate
        assert (await run(out(CHURN, "x"))).entries[0].placement == start  # too few samples


@pytest.mark.parametrize(
    ("tokens", "misses"),
    [(99, 1), (100, 0)],
)
async def test_B12_a_hit_is_100_tokens_or_half_of_the_prefix(tokens: int, misses: int) -> None:
    run = Run()
    await run(out(STEADY, BIG))
    await run(out(STEADY, BIG), cached=tokens)
    assert run.lineage.misses == misses
    small = Run()
    await small(out(STEADY, "few"))
    half = estimate_item_tokens((await small(out(STEADY, "few"))).anchor) / 2
    small.lineage.judge({"cached_tokens": half})
    assert small.lineage.misses == 0
