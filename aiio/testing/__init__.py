"""For the tests of programs that use aiio: a provider that does what it is told, and faults at will.

    scripted, add_script      a provider on virtual time, without a socket
    mock_server               a provider on loopback, in five dialects, by script or recording
    fault_proxy               breaks connections at an exact byte
    record                    real traffic to a recording
    checkpoint_store_conformance
                              the rules of a checkpoint store, for one of your own
    pytest_plugin             the same as fixtures

Scripts are made of `say, think, call, pause, head, ping, raw, finish, fail, hang`, faults of `latency,
throttle, stall, reset, eof, half_close, slow_close, refuse`.

The names are imported when they are first used: pytest imports this package for its plug-in in every run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoint_stores import checkpoint_store_conformance
    from .faults import (
        Fault,
        FaultKind,
        eof,
        half_close,
        latency,
        parse_fault,
        refuse,
        reset,
        slow_close,
        stall,
        throttle,
    )
    from .http import Request
    from .proxy import FaultProxy, fault_proxy
    from .recorder import Recorder, record
    from .recordings import Recording, load_recordings
    from .script_files import load_scripts
    from .script_provider import ScriptedPeer, add_script, scripted
    from .server import MockServer, mock_server
    from .steps import Script, Step, call, fail, finish, hang, head, pause, ping, raw, say, think

_HOMES = {
    "checkpoint_stores": ["checkpoint_store_conformance"],
    "faults": [
        "Fault",
        "FaultKind",
        "eof",
        "half_close",
        "latency",
        "parse_fault",
        "refuse",
        "reset",
        "slow_close",
        "stall",
        "throttle",
    ],
    "http": ["Request"],
    "proxy": ["FaultProxy", "fault_proxy"],
    "recorder": ["Recorder", "record"],
    "recordings": ["Recording", "load_recordings"],
    "script_files": ["load_scripts"],
    "script_provider": ["ScriptedPeer", "add_script", "scripted"],
    "server": ["MockServer", "mock_server"],
    "steps": [
        "Script",
        "Step",
        "call",
        "fail",
        "finish",
        "hang",
        "head",
        "pause",
        "ping",
        "raw",
        "say",
        "think",
    ],
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Fault",
    "FaultKind",
    "FaultProxy",
    "MockServer",
    "Recorder",
    "Recording",
    "Request",
    "Script",
    "ScriptedPeer",
    "Step",
    "add_script",
    "call",
    "checkpoint_store_conformance",
    "eof",
    "fail",
    "fault_proxy",
    "finish",
    "half_close",
    "hang",
    "head",
    "latency",
    "load_recordings",
    "load_scripts",
    "mock_server",
    "parse_fault",
    "pause",
    "ping",
    "raw",
    "record",
    "refuse",
    "reset",
    "say",
    "scripted",
    "slow_close",
    "stall",
    "think",
    "throttle",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
