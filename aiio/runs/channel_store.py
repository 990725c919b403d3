"""The channels of one harness, by name, and the blocking operations on them."""

from __future__ import annotations

import math
from typing import Any

import trio

from aiio.context.log import get_logger
from aiio.env.durations import Duration, parse_duration

from .channels import Channel, ChannelMode, ChannelState, Wait
from .errors import RunError, RunErrorKind

RECEIVE_TIMEOUT = 30.0
"""Seconds a `recv` waits when it is not told how long."""

PARK_TIMEOUT = 30.0
"""Seconds a sender parks."""

TOPIC_TIMEOUT = 300.0
"""Seconds a `recv` from a topic waits when it is told to wait for ever: nothing may ever come."""


class ChannelStore:
    """Channel states by name. The first reference fixes mode and capacity."""

    def __init__(self) -> None:
        self._states: dict[str, ChannelState] = {}

    def state(self, channel: Channel[Any]) -> ChannelState:
        """Return the state of *channel*. ValueError: its name is used with another mode."""
        state = self._states.get(channel.name)
        if state is None:
            state = self._states[channel.name] = ChannelState(channel.mode, channel.capacity)
        if state.mode is not channel.mode:
            raise ValueError(f"channel {channel.name!r} is a {state.mode.value}, not a {channel.mode.value}")
        return state

    async def send(
        self, channel: Channel[Any], value: Any, waits: set[Wait], stopped: RunError | None
    ) -> None:
        """Send *value*; park while a queue is full.

        Args:
          channel: where to.
          value: checked first, whatever happens then.
          waits: holds the wait while it lasts, for whoever stops it.
          stopped: why the sender's run is over, if it is: what finds room is sent, nothing parks.

        Raises:
          RunError: item_schema_mismatch; channel_timeout: no room for 30 s; *stopped*.

        Cancellation: a value whose send raised `Cancelled` was not sent. A checkpoint.
        """
        channel.check(value)
        if stopped is None:
            await trio.lowlevel.checkpoint_if_cancelled()
        state = self.state(channel)
        parked = state.send(value)
        if parked is None:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        if stopped is not None:
            parked.leave()
            raise stopped
        await self._finish(parked, channel, PARK_TIMEOUT, waits)

    async def recv(self, channel: Channel[Any], waits: set[Wait], timeout: Duration | None = None) -> Any:
        """Return the channel's value, or wait for one.

        Args:
          channel: where from.
          waits: holds the wait while it lasts, for whoever stops it.
          timeout: 0 or `"never"`: no limit (from a topic: 300 s); None: 30 s.

        Raises:
          RunError: channel_timeout; what the wait was refused with.

        Cancellation: no value is lost; one that was handed over is returned. A checkpoint.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        seconds = self._seconds(channel, timeout)
        state = self.state(channel)
        found, value = state.take()
        if found:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return value
        return await self._finish(state.receive(), channel, seconds, waits)

    def try_recv(self, channel: Channel[Any]) -> Any:
        """Return a value if there is one now, else None. What parks at capacity 0 is not taken."""
        return self.state(channel).take(parked=False)[1]

    async def _finish(self, wait: Wait, channel: Channel[Any], seconds: float, waits: set[Wait]) -> Any:
        waits.add(wait)
        try:
            with trio.move_on_after(seconds):
                return await wait.finished()
        finally:
            waits.discard(wait)
        text = f"channel {channel.name!r}: nothing happened for {seconds:g} s"
        raise RunError(RunErrorKind.CHANNEL_TIMEOUT, text, channel_name=channel.name, timeout=seconds * 1000)

    def _seconds(self, channel: Channel[Any], timeout: Duration | None) -> float:
        if timeout is None:
            return RECEIVE_TIMEOUT
        number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        seconds = math.inf if number and timeout <= 0 else parse_duration(timeout)  # type: ignore[operator]
        assert seconds is not None  # only None comes back as None
        if math.isinf(seconds) and channel.mode is ChannelMode.TOPIC:
            get_logger().warning("channel.topic_timeout", channel=channel.name, seconds=TOPIC_TIMEOUT)
            return TOPIC_TIMEOUT
        return seconds
