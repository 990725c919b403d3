# mypy: ignore-errors
from my_agent import ask, looked_up

from aiio.testing import call, fail, hang, say, stall


async def test_a_stall_keeps_what_was_said(aiio_env, aiio_server, aiio_faults, aiio_clock):
    aiio_server.play(say("It is "), say("sunny"), hang())
    assert await ask(aiio_env, aiio_server.model(), "Weather?") == "It is sunny [the model went silent]"
    aiio_faults.play(stall(after=530))  # the same in the network, in the middle of a frame
    assert await ask(aiio_env, aiio_faults.model(), "Weather?") == "It is  [the model went silent]"


async def test_a_tool_call_that_is_cut_is_never_made(aiio_env, aiio_server):
    aiio_server.play(say("Let me look."), call("weather", '{"city": "Ber', cut=True), fail())
    assert await ask(aiio_env, aiio_server.model("anthropic"), "Weather?") == "Let me look. [failed: network]"
    assert looked_up == []


async def test_a_429_tells_the_user_when_to_come_back(aiio_env, aiio_server):
    aiio_server.play(fail(429, retry_after="12s"))
    assert await ask(aiio_env, aiio_server.model("gemini"), "Weather?") == "[busy, try again in 12 s]"
