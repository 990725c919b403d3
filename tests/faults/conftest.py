"""Fixtures: a certificate authority, room for many sockets."""

from __future__ import annotations

import resource
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme


@dataclass(frozen=True)
class TLS:
    """A server's TLS context, and the settings by which an Env trusts it."""

    server: ssl.SSLContext
    settings: dict[str, str]


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TLS:
    """TLS as in life: the authority comes by a file named in the settings."""
    authority = trustme.CA()
    path: Path = tmp_path_factory.mktemp("authority") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return TLS(context, {"ca_file": str(path)})


@pytest.fixture
def many_files() -> Iterator[None]:
    """Allow at least 2,000 open files, if the machine does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip(f"this machine allows {hard} open files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
