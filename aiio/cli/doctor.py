"""`aiio doctor`: why an endpoint does not work, found step by step, or that it does.

Each step does one thing that a request does, alone and with a limit of its own: find the settings, look
at the credential, choose the proxy, resolve the name, connect, speak TLS, speak HTTP, read the list of
models, ask for a word. The first that fails is the diagnosis; what lies behind it is not tried.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import trio

from aiio.context.events import ErrorKind
from aiio.env.env import Env

from .doctor_net import Place, connect, resolve_name, speak_tls
from .doctor_talk import Listing, ask_model, speak_http
from .doctor_trouble import Trouble
from .endpoints import MISSING, credential_state
from .exits import BY_KIND, DONE, CliFault
from .models import chosen_model
from .output import Output
from .session import Session

Outcome = Literal["ok", "note", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one step found."""

    step: str
    outcome: Outcome
    seconds: float
    detail: str


@dataclass(slots=True, kw_only=True)
class Checkup:
    """An examination of one endpoint, and what the steps learn for those after them."""

    env: Env
    endpoint: str
    model: str | None = None
    """The model to try; None: none is named."""
    findings: list[Finding] = field(default_factory=list)
    trouble: Trouble | None = None
    url: str = field(default="", repr=False)
    token: str | None = field(default=None, repr=False)
    place: Place = field(default_factory=Place)
    listing: Listing | Trouble | None = None
    """The models that the server lists, or what is wrong with its list; None: it publishes none."""

    async def run(self, report: Callable[[Finding], Awaitable[None]]) -> None:
        """Do all steps up to the first that fails, and *report* each."""
        for name, step in STEPS.items():
            started = trio.current_time()
            outcome: Outcome = "ok"
            if self.trouble is not None:
                outcome, detail = "skipped", "-"
            else:
                try:
                    outcome, detail = await step(self)
                except Trouble as trouble:
                    self.trouble, outcome, detail = trouble, "failed", trouble.verdict
            seconds = trio.current_time() - started
            said = " ".join(self.env.scrub(detail).splitlines())
            finding = Finding(step=name, outcome=outcome, seconds=seconds, detail=said)
            self.findings.append(finding)
            await report(finding)

    @property
    def verdict(self) -> str:
        """One sentence: it works, or what is wrong and what to do."""
        if self.trouble is None:
            return f"{self.endpoint} works"
        return self.env.scrub(f"{self.endpoint}: {self.trouble.verdict}; {self.trouble.advice}")


Found = tuple[Outcome, str]
Step = Callable[[Checkup], Awaitable[Found]]


async def doctor(session: Session, out: Output, named: str | None, *, json_lines: bool = False) -> int:
    """Examine the endpoint *named* (`ENDPOINT` or `ENDPOINT/MODEL`; None: the configured model's).

    Prints a line per step, and the verdict as the last. Returns the exit code of the kind of trouble.

    CliFault: unknown endpoint.
    """
    endpoint, _, model = (named or chosen_model(session.env, None)).partition("/")
    try:
        session.env.endpoint(endpoint)
    except ValueError as exc:
        raise CliFault(str(exc)) from exc
    checkup = Checkup(env=session.env, endpoint=endpoint, model=model or _configured(session.env, endpoint))

    async def report(finding: Finding) -> None:
        if json_lines:
            await out.line(json.dumps(_row(finding)).encode() + b"\n")
        else:
            took = f"{finding.seconds * 1000:9.1f} ms" if finding.outcome != "skipped" else " " * 12
            await out.text(f"{finding.outcome:<8}{finding.step:<12}{took}  {finding.detail}\n")

    with trio.CancelScope() as scope:
        session.on_stop = scope.cancel
        await checkup.run(report)
    if session.stopping:
        return session.signal_code
    trouble = checkup.trouble
    if json_lines:
        verdict = {
            "step": "verdict",
            "outcome": trouble.name if trouble else "good",
            "detail": checkup.verdict,
        }
        await out.line(json.dumps(verdict).encode() + b"\n")
    else:
        await out.text(f"{checkup.verdict}\n")
    return DONE if trouble is None else BY_KIND[trouble.kind]


def _row(finding: Finding) -> dict[str, Any]:
    ms = round(finding.seconds * 1000, 3)
    return {"step": finding.step, "outcome": finding.outcome, "ms": ms, "detail": finding.detail}


def _configured(env: Env, endpoint: str) -> str | None:
    """Return the configured model if it is one of *endpoint*."""
    model = env.settings.get("model")
    name, _, bare = model.partition("/") if isinstance(model, str) else ("", "", "")
    return bare if name == endpoint and bare else None


# --- the steps that need no network ---


async def _settings(checkup: Checkup) -> Found:
    env, endpoint = checkup.env, checkup.env.endpoint(checkup.endpoint)
    await trio.lowlevel.checkpoint()
    folder = "no settings files" if env.files.folder is None else f"settings in {env.files.folder}"
    return "ok", f"dialect {endpoint.provider}, {folder}"


async def _credential(checkup: Checkup) -> Found:
    """Look at the credential, then at the address: the embedded model is started by this."""
    env, name = checkup.env, checkup.endpoint
    state = credential_state(env, name)
    if state.startswith((MISSING, "unusable")):
        advice = f"set it in the environment, or run `aiio auth set {name}`"
        raise Trouble("no_credential", ErrorKind.AUTH, f"the credential is {state}", advice)
    try:
        address = await env.resolve(name)
    except Exception as exc:
        raise Trouble.of(exc, name) from exc
    checkup.url = address.url
    if address.credential is None:
        return "ok", "none, and none is needed"
    checkup.token = address.credential.reveal()
    if env.endpoint(name).embedded:
        return "ok", "one of its own, made when the embedded model's server started"
    length = f"{len(checkup.token)} characters"
    known = env.presets.get(name)
    prefix = "" if known is None else known.key_prefix
    if not checkup.token.startswith(prefix):
        return "note", f"{state}, {length}; keys of {name} usually begin with {prefix}"
    return "ok", f"{state}, {length}"


async def _proxy(checkup: Checkup) -> Found:
    await trio.lowlevel.checkpoint()
    settings = checkup.env.endpoint_settings(checkup.endpoint)
    proxy = checkup.env.proxy_for(checkup.url, settings)
    checkup.place = Place.of(checkup.url, proxy)
    return "ok", "none: the connection is direct" if proxy is None else f"through {proxy}"


async def _dns(checkup: Checkup) -> Found:
    return "ok", await resolve_name(checkup.place)


async def _tcp(checkup: Checkup) -> Found:
    return "ok", await connect(checkup.place)


async def _tls(checkup: Checkup) -> Found:
    place = checkup.place
    if not place.tls:
        await trio.lowlevel.checkpoint()
        return "skipped", "the URL is no https URL" if not place.proxied else "the proxy carries it"
    try:
        context = checkup.env.ssl_context
    except Exception as exc:
        raise Trouble.of(exc, checkup.endpoint) from exc
    return "ok", await speak_tls(place, context)


async def _http(checkup: Checkup) -> Found:
    checkup.listing, detail = await speak_http(checkup.env, checkup.endpoint)
    return "ok", detail


async def _models(checkup: Checkup) -> Found:
    await trio.lowlevel.checkpoint()
    if isinstance(checkup.listing, Trouble):
        raise checkup.listing
    if checkup.listing is None:
        return "skipped", "the server publishes no list"
    names = list(checkup.listing)
    if checkup.model is None and names and checkup.place.is_here:
        checkup.model = names[0]  # costs nothing there
    listed = checkup.model is None or checkup.model in names
    missing = "" if listed else f", {checkup.model!r} is not among them"
    return ("ok" if listed else "note"), f"{len(names)} model{'s' * (len(names) != 1)}{missing}"


async def _request(checkup: Checkup) -> Found:
    if checkup.model is None:
        await trio.lowlevel.checkpoint()
        return "skipped", f"name a model to try one: aiio doctor {checkup.endpoint}/MODEL"
    return "ok", await ask_model(checkup.env, f"{checkup.endpoint}/{checkup.model}")


STEPS: dict[str, Step] = {
    "settings": _settings,
    "credential": _credential,
    "proxy": _proxy,
    "dns": _dns,
    "tcp": _tcp,
    "tls": _tls,
    "http": _http,
    "models": _models,
    "request": _request,
}
"""In the order in which a request meets them."""
