"""Ray, started once for all tests of a process."""

from __future__ import annotations

import importlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from aiio.scale.ray_engine import OBJECT_STORE_BYTES

NOT_HERE = "Ray is not installed (extra `ray`); scripts/test-scale does it"


@pytest.fixture(scope="session")
def ray_folder() -> Iterator[str]:
    """A folder for what Ray writes: of a short path, as it holds sockets. Skips where there is no Ray."""
    pytest.importorskip("ray", reason=NOT_HERE)
    folder = tempfile.mkdtemp(prefix="ray-")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def ray_address(ray_folder: str) -> Iterator[str]:
    """The address of a Ray instance on this machine, which this process is connected to."""
    ray = importlib.import_module("ray")
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        log_to_driver=False,
        logging_level="ERROR",
        _temp_dir=ray_folder,
        _skip_env_hook=True,
    )
    yield str(ray.get_runtime_context().gcs_address)
    ray.shutdown()
