"""What is checked before a request is read: host, key, scope, rate, size and time of the upload.

This is ASGI itself, as FastAPI reads a body before it asks any dependency.
"""

import asyncio
import json
import math
import reprlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from simple_spk.serve.keys import SCOPES, KeyFile
from simple_spk.serve.request_metrics import RequestMetrics

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
MOST_UPLOADS = 256  # at once, of all clients: each has a file or some memory
MOST_CLIENTS = 10_000  # whose rate is remembered
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass
class Limits:
    """What clients may ask for."""

    keys: KeyFile | None = None  # None: everybody may use everything
    hosts: tuple[str, ...] | None = LOCAL_NAMES  # names of this server; None: any
    requests_per_minute: float = 600.0  # of a key, or else of an address
    upload_bytes: int = 50 * 10**6
    upload_seconds: float = 60.0
    _tokens: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def check_rate(self, client: str) -> None:
        """Take one of the requests that a client has left, which come back at a steady rate."""
        most, now = self.requests_per_minute, time.monotonic()
        left, then = self._tokens.pop(client, (most, now))
        left = min(most, left + (now - then) * most / 60.0)
        self._tokens[client] = (left - 1.0 if left >= 1.0 else left, now)
        while len(self._tokens) > MOST_CLIENTS:
            self._tokens.popitem(last=False)
        if left < 1.0:
            wait = math.ceil((1.0 - left) * 60.0 / most)
            what = f"more than {most:g} requests a minute: try again in {wait} s"
            raise HTTPException(429, what, {"Retry-After": str(wait)})

    def check_origin(self, headers: dict[str, str]) -> None:
        """Refuse what a page of another site asks for, and names that lead here but are not ours.

        Otherwise any site could use a service that its visitor runs without keys.
        """
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            name, site = urlsplit(f"//{host}").hostname, urlsplit(origin or "").netloc
        except ValueError as error:
            raise HTTPException(400, f"no address in Host or Origin: {error}") from error
        if self.hosts is not None and name not in self.hosts:
            raise HTTPException(403, f"this server is not {host[:100]}: start it with --host")
        if origin is not None and site != host:
            raise HTTPException(403, "a page of another site may not use this server")

    def check_key(self, key: str | None, scope: str, address: str) -> None:
        """Refuse unknown keys, those without the scope, and too many requests."""
        if self.keys is None:
            return self.check_rate(address)
        found = self.keys.find(key or "")
        if found is None:
            self.check_rate(address)
            what = "this server needs an API key, as Authorization: Bearer KEY"
            if key:
                what = "this key is unknown here: it is misspelled, or was removed"
            raise HTTPException(401, what, {"WWW-Authenticate": "Bearer"})
        name, scopes = found
        self.check_rate(f"key {name}")
        if scope not in scopes:
            raise HTTPException(403, f"this key is not for {scope}: it has no such scope")
        return None


class Gate:
    """Lets requests through to the app that keep to the limits."""

    def __init__(self, app: App, limits: Limits, metrics: RequestMetrics) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.uploads = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started = time.monotonic()
        status = 500
        body = Body(receive, self.limits)

        async def watched(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status >= 400 and not body.is_whole:  # what is still sent is not wanted
                    headers = [*message.get("headers", ()), (b"connection", b"close")]
                    message = {**message, "headers": headers}
            await send(message)

        try:
            try:
                self.check(scope)
                if self.uploads >= MOST_UPLOADS:
                    raise HTTPException(503, "too many uploads at once", {"Retry-After": "5"})
            except HTTPException as refusal:
                return await refuse(refusal, watched)
            self.uploads += 1
            try:
                await self.app(scope, body, watched)
            finally:
                self.uploads -= 1
        finally:
            self.metrics.count(scope["path"], status, time.monotonic() - started)
        return None

    def check(self, scope: Scope) -> None:
        """Raise if a request may not be served."""
        headers, limits = headers_of(scope), self.limits
        limits.check_origin(headers)
        name = scope["path"].strip("/")
        if name in SCOPES:
            limits.check_key(bearer(headers), name, address_of(scope))
            kind = headers.get("content-type", "none")
            if scope["method"] == "POST" and not kind.lower().startswith("multipart/form-data"):
                what = "send a form (multipart/form-data; curl: -F FIELD=@FILE)"
                raise HTTPException(422, f"{what}, not content of type {reprlib.repr(kind)}")
        promised = headers.get("content-length", "0")
        if not promised.isdecimal() or int(promised) > limits.upload_bytes:
            raise too_large(limits)


class Body:
    """The body of a request within the limits of size and time."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self.receive, self.limits = receive, limits
        self.until = time.monotonic() + limits.upload_seconds
        self.bytes, self.is_whole = 0, False

    async def __call__(self) -> MutableMapping[str, Any]:
        if self.is_whole:  # what comes now is the end of the connection, whenever
            return await self.receive()
        try:
            message = await asyncio.wait_for(self.receive(), self.until - time.monotonic())
        except asyncio.TimeoutError:
            what = f"the upload takes more than {self.limits.upload_seconds:g} s"
            raise HTTPException(408, what) from None
        self.bytes += len(message.get("body", b""))
        if self.bytes > self.limits.upload_bytes:
            raise too_large(self.limits)
        self.is_whole = not message.get("more_body", False)
        return message


def too_large(limits: Limits) -> HTTPException:
    """The refusal of a large request."""
    most = limits.upload_bytes / 1e6
    return HTTPException(
        413, f"a request has at most {most:g} MB: send a shorter or a compressed recording"
    )


async def refuse(refusal: HTTPException, send: Send) -> None:
    """Answer with an error."""
    headers = {"content-type": "application/json"}
    headers |= {name.lower(): value for name, value in (refusal.headers or {}).items()}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status_code, "headers": pairs})
    body = json.dumps({"detail": refusal.detail}).encode()
    await send({"type": "http.response.body", "body": body})


def headers_of(scope: Scope) -> dict[str, str]:
    """The headers of a request by their names in lower case."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def bearer(headers: dict[str, str]) -> str | None:
    """The API key of a request, if it has one."""
    kind, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else None


def address_of(scope: Scope) -> str:
    """The address of a client."""
    return scope["client"][0] if scope.get("client") else "unknown"
