"""Where credentials are kept: in the live settings, and behind them in the user's file or the keyring.

A change goes to the disk first and into memory when it is there, so that either both have it or neither. A
record whose secrets are in the keyring says `store = "keyring"` in the file; they are read when the Env is
entered, never on the way of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeGuard, TypeVar

import trio

from aiio.context.events import ErrorKind
from aiio.context.log import get_logger

from .auth import CREDENTIAL_KEYS, SECRET_KEYS
from .config_files import PROJECTS, ConfigFiles
from .credential_file import CredentialFile, Keyring, revealed
from .errors import ProviderError
from .settings import Settings, auth_object, changed_record

KEYRING_LIMIT = 5.0
"""Seconds a keyring may take; one that waits for somebody to unlock it never answers."""
SCOPES = ("package", "local")
STORES = (None, "keyring", "file")
KEYRING = "the system's keyring"

Held = dict[str, Any]
T = TypeVar("T")


class CredentialKeeper:
    """Reads and changes the records of endpoints.

    Args:
      settings: the live ones.
      files: where they came from; where changes go.
      given: endpoints whose credential the program itself gave: files never override it.
    """

    def __init__(self, settings: Settings, files: ConfigFiles, *, given: Collection[str] = ()) -> None:
        self.given: set[str] = set(given)
        self.keyring: Keyring = Keyring()
        self._settings = settings
        self._files = files
        self._local = set(files.local)
        self._places = {
            name: _place(record.get("auth"), files)
            for name, record in files.stored.items()
            if isinstance(record, Mapping) and record.get("auth") is not None
        }
        self._file = None if files.credentials is None else CredentialFile(files.credentials)
        self._lock = trio.Lock()

    def scope_of(self, name: str) -> str:
        """Return where the credential of endpoint *name* lives: `"local"` or `"package"`."""
        return "local" if name in self._local else "package"

    def place_of(self, name: str) -> str:
        """Return where the credential in the settings of endpoint *name* is kept, as words for people."""
        if name in self.given or name not in self._places:
            return "the program's own settings"
        only = " (for this folder only)" if name in self._local else ""
        return f"{self._places[name]}{only}"

    async def set(self, name: str, data: object, scope: str | None) -> None:
        """Change the record of endpoint *name*; see `Env.auth_set`.

        Cancellation: whole or not at all. Always a checkpoint.
        """
        changed_record(self._settings.record(name), data, name)  # raises before anything is changed
        store = self._settings.get("credential_store")
        if store not in STORES:
            raise ValueError(f"setting credential_store is 'keyring' or 'file', not {store!r}")
        await trio.lowlevel.checkpoint()
        if self._file is None:
            self._settings.set_auth(name, data)
            return
        # From now on its URL stands in the user's own file, and no project can move the credential elsewhere.
        pinned = {**self._files.introduced.get(name, {}), **auth_object(data)}
        where = scope or self.scope_of(name)
        section = self._section(name, where)
        async with self._lock:
            in_keyring = await self._keep(self._file, section, name, pinned, store)
            self._settings.set_auth(name, data)
        if pinned.keys() & {"auth", *CREDENTIAL_KEYS}:
            self._places[name] = KEYRING if in_keyring else str(self._file.path)
            self.given.discard(name)
        if where == "local":
            self._local.add(name)

    async def remove(self, name: str, scope: str | None, *, whole: bool = False) -> bool:
        """Forget the credential of endpoint *name*; see `Env.auth_remove`. *whole*: its record with it."""
        found = "auth" in self._settings.record(name)
        await trio.lowlevel.checkpoint()
        if self._file is not None:
            async with self._lock:
                for where in SCOPES if scope is None else (scope,):
                    if where == "package" or self._files.project is not None:
                        found |= await self._drop(self._file, self._section(name, where), whole=whole)
        if found:
            self._settings.set_auth(name, {"auth": None})
        self._places.pop(name, None)
        self.given.discard(name)
        if scope != "package":
            self._local.discard(name)
        return found

    async def load(self) -> None:
        """Read what the keyring holds for the records that say so. What can't be read is logged."""
        for name in list(self._settings):
            auth = self._settings.record(name).get("auth")
            if _in_keyring(auth) and not auth.keys() & SECRET_KEYS:
                held = await self._load(self._section(name, self.scope_of(name)))
                try:
                    self._settings.set_auth(name, held)
                except ProviderError as exc:  # somebody else wrote it there: told again when it is needed
                    get_logger().warning("keyring.unusable", why=exc.message)

    async def reread(self, name: str) -> bool:
        """Take over what another process wrote about endpoint *name*; True: its credential changed."""
        if self._file is None or name in self.given:
            await trio.lowlevel.checkpoint()
            return False
        section = self._section(name, self.scope_of(name))
        try:
            auth = (await _in_thread(self._file.read, section)).get("auth")
        except ValueError as exc:
            get_logger().warning("config.ignored", why=str(exc))
            return False
        if isinstance(auth, str):
            auth = {"type": "api_key", "token": auth}
        if not isinstance(auth, Mapping):
            return False
        if _in_keyring(auth):
            auth = {**auth, **await self._load(section)}
        auth = {key: value for key, value in auth.items() if key != "store"}
        if not auth.keys() & SECRET_KEYS or auth == revealed(self._settings.record(name).get("auth")):
            return False
        try:
            changed_record({}, {"auth": auth}, name)
        except ProviderError as exc:  # what stands there can't be sent: the old one is no worse
            get_logger().warning("config.ignored", why=exc.message)
            return False
        self._settings.set_auth(name, {"auth": None})  # what the file has no more is not kept either
        self._settings.set_auth(name, {"auth": auth})
        return True

    # --- inside ---

    def _section(self, name: str, scope: str) -> tuple[str, ...]:
        if scope == "package":
            return (name,)
        if self._files.project is None:
            raise ValueError(
                "a credential of scope 'local' belongs to the working directory, and there is none"
            )
        return (PROJECTS, str(self._files.project), name)

    async def _keep(
        self,
        file: CredentialFile,
        section: tuple[str, ...],
        name: str,
        data: Mapping[str, Any],
        store: str | None,
    ) -> bool:
        """Write the changed record; True: its secrets went into the keyring, which is wanted and works."""
        before = await _in_thread(file.read, section)
        was_in_keyring = _in_keyring(before.get("auth"))
        held = await self._load(section) if was_in_keyring else {}
        after = _changed(before, held, data, name)
        secrets = _secrets(after)
        kept = bool(secrets) and store != "file" and await self._save(section, secrets)
        if secrets and store == "keyring" and not kept:
            raise ProviderError(
                ErrorKind.AUTH,
                f"the system's keyring did not keep the credential of {name!r}: install and unlock one "
                "(extra `keyring`), or choose credential_store = 'file'",
                code="no_keyring",
            )

        def change(current: dict[str, Any]) -> dict[str, Any]:
            record: dict[str, Any] = revealed(_changed(current, held, data, name))
            return _without_secrets(record) if kept else record

        await _in_thread(file.change, section, change)
        if was_in_keyring and not kept:
            await self._forget(section)
        return kept

    async def _drop(self, file: CredentialFile, section: tuple[str, ...], *, whole: bool) -> bool:
        before = await _in_thread(file.read, section)
        if not before or not (whole or before.get("auth") is not None):
            return False
        await _in_thread(file.change, section, _nothing if whole else _without_auth)
        if _in_keyring(before.get("auth")):
            await self._forget(section)
        return True

    async def _load(self, section: tuple[str, ...]) -> Held:
        return await self._ask("read", partial(self.keyring.load, _slot(section))) or {}

    async def _save(self, section: tuple[str, ...], secrets: Mapping[str, str]) -> bool:
        if not self.keyring.installed():
            return False
        return await self._ask("write", partial(self.keyring.save, _slot(section), secrets)) is True

    async def _forget(self, section: tuple[str, ...]) -> None:
        await self._ask("delete", partial(self.keyring.delete, _slot(section)))

    async def _ask(self, what: str, call: Callable[[], T]) -> T | None:
        """Call the keyring; None: it failed, or took too long. The log says which, and quotes nothing."""
        why = f"no answer in {KEYRING_LIMIT:g} s"
        with trio.move_on_after(KEYRING_LIMIT):
            try:
                return await trio.to_thread.run_sync(call, abandon_on_cancel=True)
            except Exception as exc:  # noqa: BLE001  # every backend has exceptions of its own
                why = type(exc).__name__
        get_logger().warning("keyring.failed", what=what, why=why)
        return None


async def _in_thread(fn: Callable[..., T], *args: Any) -> T:
    """Run *fn* in a thread, to its end once it has begun."""
    return await trio.to_thread.run_sync(fn, *args, abandon_on_cancel=False)


def _changed(before: Mapping[str, Any], held: Held, data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the record that *data* makes of *before* with the secrets *held* elsewhere."""
    auth = before.get("auth")
    if _in_keyring(auth):
        whole = {key: value for key, value in auth.items() if key != "store"}
        before = {**before, "auth": {**whole, **held}}
    return changed_record(before, data, name)


def _secrets(record: Mapping[str, Any]) -> dict[str, str]:
    auth = revealed(record.get("auth"))
    return {key: auth[key] for key in SECRET_KEYS if key in auth} if isinstance(auth, Mapping) else {}


def _without_secrets(record: dict[str, Any]) -> dict[str, Any]:
    auth = {key: value for key, value in record["auth"].items() if key not in SECRET_KEYS}
    return {**record, "auth": {**auth, "store": "keyring"}}


def _without_auth(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "auth"}


def _nothing(record: dict[str, Any]) -> dict[str, Any]:
    return {}


def _in_keyring(auth: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(auth, Mapping) and auth.get("store") == "keyring"


def _place(auth: Any, files: ConfigFiles) -> str:
    return KEYRING if _in_keyring(auth) else str(files.credentials)


def _slot(section: tuple[str, ...]) -> str:
    return "/".join(section)
