"""Kill and `max_active` against a real model's server, which is asked itself what it is still doing."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

import aiio
from tests.model import RealModel, real_model

from .peer import peer

pytestmark = [pytest.mark.model, pytest.mark.timeout(420)]

__all__ = ["real_model"]

PROMPT = [aiio.user_message("Tell a long story about a lighthouse.")]
KILLS = 24
IDLE_WITHIN = 1.0
"""Seconds the server may take to notice; the judge's patience, on the real clock."""


async def busy(model: RealModel) -> int:
    """How many slots of the server are at work."""
    slots = await trio.to_thread.run_sync(model.slots)
    return sum(bool(slot["is_processing"]) for slot in slots)


async def wait_idle(model: RealModel) -> bool:
    """Tell whether the server became idle in time."""
    with trio.move_on_after(IDLE_WITHIN):
        while await busy(model):
            await trio.sleep(0.02)
        return True
    return False


async def test_the_server_is_idle_within_a_second_of_a_kill(real_model: RealModel) -> None:
    rng = random.Random(50)
    async with peer(real_model.url, auth=real_model.key, quirks={"max_tokens_field": "max_tokens"}) as env:
        # Its first prompt takes a cold model about a second, in which it looks at nothing else.
        warm_up = aiio.IO(env=env, model=f"peer/{real_model.model}", settings={"max_tokens": 1})
        await warm_up.write(PROMPT)
        late, partials, at_work = [], 0, 0
        for number in range(KILLS):
            io = aiio.IO(env=env, model=f"peer/{real_model.model}", settings={"max_tokens": 400})
            ended: list[Any] = []
            begun = trio.Event()

            def heard(one: Any, begun: trio.Event = begun) -> None:
                begun.set()

            async def run(io: aiio.IO = io, ended: list[Any] = ended, heard: Any = heard) -> None:
                ended.append(await io.write(PROMPT, {"on_text_delta": heard}))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                if number % 2:  # half of them in the middle of the answer, half at any moment before
                    await begun.wait()
                await trio.sleep(rng.uniform(0, 0.25))
                at_work += bool(await busy(real_model))
                await io.kill()
            assert io.state == "closed"
            (terminal,) = ended
            assert isinstance(terminal, aiio.Error), "a long story is not over that soon"
            assert terminal.cancelled
            partials += terminal.message is not None
            if not await wait_idle(real_model):
                late.append(number)
        assert late == []
        assert partials >= KILLS // 2
        assert at_work >= KILLS // 2


async def test_forty_writers_are_never_more_than_four_in_flight(real_model: RealModel) -> None:
    settings = {"max_tokens": 4}
    async with peer(
        real_model.url, auth=real_model.key, max_active=4, quirks={"max_tokens_field": "max_tokens"}
    ) as env:
        most_active = most_slots = 0
        kinds: list[str] = []

        def sample(one: Any) -> None:
            nonlocal most_active
            most_active = max(most_active, len(env.active_io))

        async def run() -> None:
            io = aiio.IO(env=env, model=f"peer/{real_model.model}", settings=settings, on_data=sample)
            kinds.append((await io.write(PROMPT)).type)

        async def watch() -> None:
            nonlocal most_slots
            while True:
                most_slots = max(most_slots, await busy(real_model))
                await trio.sleep(0.05)

        async with trio.open_nursery() as outer:
            outer.start_soon(watch)
            async with trio.open_nursery() as writers:
                for _ in range(40):
                    writers.start_soon(run)
            outer.cancel_scope.cancel()
        assert kinds == ["done"] * 40
        assert most_active == 4
        assert 0 < most_slots <= 4
        assert await wait_idle(real_model)
