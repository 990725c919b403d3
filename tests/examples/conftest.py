"""The stranger's suite is run by test_strangers_suite.py, as a stranger would, not by our own pytest."""

from __future__ import annotations

collect_ignore = ["stranger"]
