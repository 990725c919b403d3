"""Run by scripts/package where aiio-runtime is installed without extras: every public name is there."""

from __future__ import annotations

import importlib.util

import aiio

CLI = ("click", "rich", "tomlkit")
EXTRAS = (*CLI, "xllamacpp", "opentelemetry", "genai_prices", "keyring", "httpx2", "ray")
"""What the extras in pyproject.toml install, by the names under which it is imported."""
ROOMS = ("agents", "bridges", "builder", "observe", "runs", "scale", "testing", "transports")


def main() -> None:
    """AssertionError: an extra is installed, or the package needs one."""
    installed = [name for name in EXTRAS if importlib.util.find_spec(name) is not None]
    assert not installed, f"not an installation without extras: {installed}"
    for name in (*aiio.__all__, *ROOMS):
        assert getattr(aiio, name) is not None


if __name__ == "__main__":
    main()
