"""Reading writes back from a log that a crash may have torn."""

from __future__ import annotations

from pathlib import Path

from aiio.context.log import get_logger
from aiio.observe import configure, read_trace


def test_records_of_writes_are_found_among_everything_else(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with configure(path):
        get_logger().info("local.started")
        get_logger().info("request.settled", write=1)
    with path.open("ab") as log:
        log.write(b'\xff\xfe\n[1]\n"x"\n{"event":"request.settled","write":2}\n{"event":"request.set')
    assert [record["write"] for record in read_trace(path)] == [1, 2]
