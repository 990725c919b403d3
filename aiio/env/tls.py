"""The one TLS context of an Env: making one costs tens of milliseconds, so requests share it."""

from __future__ import annotations

import os
import ssl

import certifi

from aiio.context.events import ErrorKind

from .errors import ProviderError


def make_ssl_context(ca_file: str | os.PathLike[str] | None = None) -> ssl.SSLContext:
    """Return a client context that trusts what this machine trusts, and *ca_file* besides.

    A Python without certificates of its own (some installers ship none) gets certifi's.

    ProviderError (network, not retryable): *ca_file* can't be read or holds no certificate.
    """
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if not any((paths.cafile, paths.capath)):
        context.load_verify_locations(certifi.where())
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as exc:  # an SSLError is one too
            reason = exc.strerror or "it holds no certificate"
            raise ProviderError(
                ErrorKind.NETWORK,
                f"can't use the certificates in {str(ca_file)!r} (setting ca_file): {reason}",
                code="bad_ca_file",
                retryable=False,
            ) from exc
    return context
