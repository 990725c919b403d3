"""nginx in front of a peer, as a child process: TLS outside, plain inside, WebSocket let through.

It keeps all its files in a folder that the caller gives. Nothing is installed: what is not on the machine is
a reason to skip.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

from .processes import PATIENCE, NotHereError, end, free_port, start

PLACES = "/usr/sbin:/usr/local/sbin"
"""Where distributions put it, which is not on every user's PATH."""

CONFIG = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {folder}/server.pem;
    ssl_certificate_key {folder}/server.pem;
    location / {{
      proxy_pass {inside};
      proxy_http_version 1.1;
      proxy_set_header Host $host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection "upgrade";
    }}
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class Front:
    """Where nginx is, and whom to trust there."""

    url: str
    ca_file: str


@contextmanager
def tls_before(inside: str, folder: Path) -> Iterator[Front]:
    """Run nginx in front of the URL *inside*. NotHereError: there is none on this machine."""
    command = shutil.which("nginx") or shutil.which("nginx", path=PLACES)
    if command is None:
        raise NotHereError("nginx is not installed")
    authority, port = trustme.CA(), free_port()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    config = folder / "nginx.conf"
    config.write_text(CONFIG.format(folder=folder, port=port, inside=inside), "utf-8")
    process = start(command, "-p", folder, "-c", config, "-e", "stderr")
    try:
        deadline = time.monotonic() + PATIENCE
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                end(process)
                raise RuntimeError(f"nginx did not come up: {process.communicate()[0][-500:]}")
            time.sleep(0.05)  # another process comes up: nobody here can wait for it in another way
        yield Front(f"https://127.0.0.1:{port}", str(folder / "ca.pem"))
    finally:
        end(process)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
