"""The notebook, executed by a real kernel against a loopback server."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.bridges.talking import answer, half
from tests.serving import serve

nbformat: Any = pytest.importorskip("nbformat", reason="nbformat is not installed (group `test`)")
if importlib.util.find_spec("nbclient") is None:
    pytest.skip("nbclient is not installed (group `test`)", allow_module_level=True)
pytest.importorskip("ipykernel", reason="ipykernel is not installed (group `test`)")

NOTEBOOK = Path(__file__).parent / "notebook" / "birds.ipynb"
REPOSITORY = Path(__file__).resolve().parents[2]
KEY = "sk-canary-0123456789abcdef"


def outputs(cell: Any) -> str:
    """What a cell printed, and its value."""
    return "".join(
        output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
        for output in cell["outputs"]
    )


EXECUTE = """
import sys, nbclient, nbformat
source, target = sys.argv[1:]
notebook = nbformat.read(source, as_version=4)
nbformat.write(nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute(), target)
"""


async def execute(environment: dict[str, str], folder: Path) -> Any:
    """Run the notebook in a kernel of its own; return it with its outputs.

    The client runs in a process of its own too: it leaves an event loop and its sockets to the collector.
    """
    target = folder / "executed.ipynb"
    command = [sys.executable, "-W", "ignore", "-c", EXECUTE, str(NOTEBOOK), str(target)]
    await trio.run_process(command, env=environment, cwd=folder)
    return nbformat.read(target, as_version=4)


@pytest.mark.timeout(180)
async def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    async with serve() as server:
        server.script_next(*answer("Wren, ", "robin, ", "owl."))
        server.script_next(*half("1, 2, 3"))
        environment = {
            **os.environ,
            "AIIO_NOTEBOOK_MODEL": "openai/gpt-test",
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{server.url}/v1",
            "PYTHONPATH": str(REPOSITORY),
            "IPYTHONDIR": str(tmp_path / "ipython"),
            "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        }
        with trio.fail_after(150):
            notebook = await execute(environment, tmp_path)
            await server.wait_idle()
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert outputs(code[1]) == "Wren, robin, owl."
    assert outputs(code[2]) == "(<EventType.DONE: 'done'>, 'Wren, robin, owl.')"
    assert outputs(code[3]) == "kept: 1, 2, 3\n"
    assert KEY not in nbformat.writes(notebook)
