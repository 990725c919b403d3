"""What the process knows: settings, endpoints, credentials, tools, and who is in flight."""

from .access import Access, Question
from .auth import Secret, read_credential
from .background import Background
from .detect import Search
from .durations import (
    DEFAULT_CONNECT_TIMEOUT_MS,
    DEFAULT_STUCK_TIMEOUT_MS,
    DEFAULT_TIMEOUT_MS,
    Duration,
    parse_duration,
    try_duration,
)
from .endpoints import KNOWN_ENDPOINTS, Endpoint, KnownEndpoint, split_selector
from .env import Address, Env, open_env
from .errors import ErrorKind, HttpStatusError, ProviderError, classify_error, depletion_error
from .ledger import Ledger
from .listeners import EnvEvent, ListenerHandle
from .safe import SafeEnv
from .scrub import Scrubber
from .settings import Settings
from .tools import Tool, ToolCatalog

__all__ = [
    "DEFAULT_CONNECT_TIMEOUT_MS",
    "DEFAULT_STUCK_TIMEOUT_MS",
    "DEFAULT_TIMEOUT_MS",
    "KNOWN_ENDPOINTS",
    "Access",
    "Address",
    "Background",
    "Duration",
    "Endpoint",
    "Env",
    "EnvEvent",
    "ErrorKind",
    "HttpStatusError",
    "KnownEndpoint",
    "Ledger",
    "ListenerHandle",
    "ProviderError",
    "Question",
    "SafeEnv",
    "Scrubber",
    "Search",
    "Secret",
    "Settings",
    "Tool",
    "ToolCatalog",
    "classify_error",
    "depletion_error",
    "open_env",
    "parse_duration",
    "read_credential",
    "split_selector",
    "try_duration",
]
