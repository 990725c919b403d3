from __future__ import annotations

import pytest
import trio

from aiio.env.groups import first_leaf, leaves


async def test_one_exception_comes_out_of_a_group() -> None:
    plain, urgent = ValueError("plain"), KeyboardInterrupt()
    group = BaseExceptionGroup("outer", [ExceptionGroup("inner", [plain]), urgent])
    assert leaves(group) == [plain, urgent]
    assert first_leaf(group) is urgent
    assert first_leaf(plain) is plain
    with trio.CancelScope() as scope:
        scope.cancel()
        with pytest.raises(trio.Cancelled) as cancelled:
            await trio.lowlevel.checkpoint()
        assert first_leaf(BaseExceptionGroup("both", [cancelled.value, plain])) is plain
