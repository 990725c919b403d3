"""Settings: layers merged into one live tree, and what holds for one endpoint.

Two namespaces speak about an endpoint. `settings["providers"][name]` is its *policy*, written by
people: dialect, URL, models, limits, quirks. `settings[name]` is its *record*, written by programs:
credentials and what was fetched. The tree is live: whoever changes `env.settings` changes what the next
request sees.
"""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from .auth import CREDENTIAL_KEYS, Secret, masked_record

Layer = Mapping[str, Any]
"""One source of settings: a file, or the constructor's argument."""


class Settings(MutableMapping[str, Any]):
    """The merged tree. Its nested dicts are the live ones: change them in place.

    Args:
      layers: lowest first. Copied; `merge_layers` has the rules.
      on_change: called with (key, value) when a top-level key is assigned (value None: deleted), so that a
        limit can follow; what it raises refuses the assignment.
    """

    def __init__(self, *layers: Layer, on_change: Callable[[str, Any], None] | None = None) -> None:
        self._tree = merge_layers(*layers)
        self._on_change = on_change

    def __getitem__(self, key: str) -> Any:
        return self._tree[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if self._on_change is not None:
            self._on_change(key, value)
        self._tree[key] = value

    def __delitem__(self, key: str) -> None:
        del self._tree[key]
        if self._on_change is not None:
            self._on_change(key, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tree)

    def __len__(self) -> int:
        return len(self._tree)

    def __repr__(self) -> str:
        return f"<Settings: {', '.join(self._tree) or 'empty'}>"  # values may hold credentials

    def policy(self, name: str) -> Mapping[str, Any]:
        """The policy of endpoint *name*; empty when there is none."""
        return _mapping(_mapping(self._tree.get("providers")).get(name))

    def record(self, name: str) -> Mapping[str, Any]:
        """The record of endpoint *name*; empty when there is none."""
        return _mapping(self._tree.get(name))

    def endpoint_names(self) -> list[str]:
        """Endpoints that have a policy, or a record that introduces one (it has a provider and a URL)."""
        configured = list(_mapping(self._tree.get("providers")))
        introduced = [name for name in self._tree if introduces(self.record(name))]
        return list(dict.fromkeys([*configured, *introduced]))

    def endpoint_settings(self, name: str, base: Layer, overrides: Layer | None = None) -> dict[str, Any]:
        """Return what holds for endpoint *name*: a fresh dict.

        *base* (what is known anyway) < record < policy < *overrides*; nested objects merge, lists and
        scalars replace, a None never hides anything. Two keys go their own way: `auth` comes from the
        overrides or the record only, and of two `models` maps the record's entries win.
        """
        record, policy = self.record(name), self.policy(name)
        merged = _overlay({}, base)
        if record:
            _overlay(merged, {key: value for key, value in record.items() if key not in ("auth", "models")})
        if policy:
            _overlay(merged, {key: value for key, value in policy.items() if key != "auth"})
        if record:
            _overlay(merged, {key: record[key] for key in ("auth", "models") if key in record})
        if overrides:
            _overlay(merged, overrides)
        return merged

    def set_policy(self, name: str, policy: Layer) -> None:
        """Lay *policy* over the policy of endpoint *name*."""
        providers = self._tree.setdefault("providers", {})
        _overlay(providers.setdefault(name, {}), policy)

    def set_auth(self, name: str, data: object) -> None:
        """Change the record of endpoint *name*.

        Args:
          name: the endpoint.
          data: a bare credential, or an object: flat credential keys (`type token access refresh
            expires`) and those under `auth` go into the record's `auth`, other keys beside it. Objects merge,
            scalars and lists replace, None deletes, `models` is replaced as a whole.

        Raises:
          TypeError: *data* is neither text nor an object.
          ProviderError: kind auth, for a credential no request could carry.
        """
        record = changed_record(self.record(name), data, name)
        present = self._tree.get(name)
        if isinstance(present, dict):  # it is live: somebody may hold it
            present.clear()
            present.update(record)
        else:
            self._tree[name] = record

    def drop(self, name: str) -> bool:
        """Take endpoint *name* out, policy and record; False: it has neither."""
        policies = self._tree.get("providers")
        dropped = isinstance(policies, dict) and policies.pop(name, None) is not None
        return (self._tree.pop(name, None) is not None) or dropped


def changed_record(record: Layer, data: object, name: str) -> dict[str, Any]:
    """Return a copy of the *record* of endpoint *name*, changed by *data* as `Settings.set_auth` says."""
    where = f"settings[{name!r}]['auth']"
    data = auth_object(data)
    given = None if data.get("auth", {}) is None else auth_object(data.get("auth", {}))
    flat = {key: value for key, value in data.items() if key in CREDENTIAL_KEYS}
    changes = masked_record({**(given or {}), **flat}, where)
    changed = copy.deepcopy(dict(record))
    if "auth" in data and given is None:
        changed.pop("auth", None)
    if changes:
        current = changed.get("auth")
        # A bare token is replaced by the record that changes it: there is nothing in it to merge with.
        changed["auth"] = _changed(dict(current) if isinstance(current, Mapping) else {}, changes)
    beside = {key: value for key, value in data.items() if key not in CREDENTIAL_KEYS and key != "auth"}
    if "models" in beside:
        changed.pop("models", None)
    return _changed(changed, beside)


def introduces(record: Mapping[str, Any]) -> bool:
    """Tell whether a record stands for an endpoint by itself."""
    return bool(record.get("provider")) and bool(record.get("url"))


def merge_layers(*layers: Layer) -> dict[str, Any]:
    """Merge *layers*, lowest first, into a fresh tree: objects deeply, lists end to end, last scalar wins.

    TypeError: a layer, its `providers`, or a policy is not an object.
    """
    tree: dict[str, Any] = {}
    for layer in layers:
        check_layer(layer)
        _join(tree, layer)
    return tree


def check_layer(layer: Layer) -> None:
    """Raise TypeError when *layer*, its `providers`, or a policy is not an object."""
    if not isinstance(layer, Mapping):
        raise TypeError(f"settings are an object, not {type(layer).__name__}")
    providers = layer.get("providers", {})
    if not isinstance(providers, Mapping):
        raise TypeError(f"settings['providers'] is an object, not {type(providers).__name__}")
    for name, policy in providers.items():
        if not isinstance(policy, Mapping):
            raise TypeError(f"settings['providers'][{name!r}] is an object, not {type(policy).__name__}")


def read_layer(source: str | Path | Layer | None) -> Layer:
    """Return a layer from a file (TOML, or JSON by its suffix); an object is one, None an empty one.

    ValueError: the file can't be read or parsed; the text names it and quotes none of its content.
    """
    if source is None:
        return {}
    if isinstance(source, Mapping):
        return source
    path = Path(source)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise ValueError(f"can't read the settings file {str(path)!r}: {reason}") from exc
    try:
        layer = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as exc:
        raise ValueError(f"can't parse the settings file {str(path)!r}: {exc}") from None
    if not isinstance(layer, dict):
        raise ValueError(f"the settings file {str(path)!r} holds no object")  # noqa: TRY004  # the file is at fault
    return layer


def auth_object(data: object) -> Mapping[str, Any]:
    """Return *data* as an auth object; bare text is an API key. TypeError: it is neither."""
    if isinstance(data, str | Secret):
        return {"type": "api_key", "token": data}
    if not isinstance(data, Mapping):
        raise TypeError(f"a credential is text or an object, not {type(data).__name__}")
    return data


def _mapping(value: object) -> Mapping[str, Any]:
    # Nearly all are plain dicts or nothing, which is told faster; settings are read for every write.
    if value is None:
        return {}
    return value if value.__class__ is dict or isinstance(value, Mapping) else {}


def _join(tree: dict[str, Any], layer: Layer) -> None:
    for key, value in layer.items():
        present = tree.get(key)
        if isinstance(value, Mapping):
            node = present if isinstance(present, dict) else {}
            _join(node, value)
            tree[key] = node
        elif isinstance(value, list) and isinstance(present, list):
            present.extend(copy.deepcopy(value))
        else:
            tree[key] = copy.deepcopy(value)


_ATOMS = frozenset({str, int, float, bool})  # what is its own copy: settings are read several times a write


def _overlay(target: dict[str, Any], layer: Layer) -> dict[str, Any]:
    """Lay *layer* over *target*: objects merge, the rest replaces (copied), None is "not set here"."""
    for key, value in layer.items():
        if value is None:
            target.setdefault(key, None)
        elif value.__class__ in _ATOMS:
            target[key] = value
        elif isinstance(value, Mapping):
            present = target.get(key)
            target[key] = _overlay(present if isinstance(present, dict) else {}, value)
        else:
            target[key] = copy.deepcopy(value)
    return target


def _changed(target: dict[str, Any], changes: Layer) -> dict[str, Any]:
    """Apply *changes* to *target*: objects merge, the rest replaces, None deletes."""
    for key, value in changes.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, Mapping):
            present = target.get(key)
            target[key] = _changed(present if isinstance(present, dict) else {}, value)
        else:
            target[key] = value
    return target
