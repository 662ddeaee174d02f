"""The process: uvicorn with limits that it lacks, and a clean end."""

import asyncio
import contextlib
import logging
import signal
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from simple_spk.inference.extractor import Extractor
from simple_spk.serve.app import Settings, make_app

HEADER_SECONDS = 15.0  # until the headers of a request are there; uvicorn itself waits forever
GRACE_SECONDS = 30  # for requests that run when the server is told to end
MOST_MESSAGE_BYTES, MOST_MESSAGES = 2**20, 4  # of a WebSocket


class ImpatientProtocol(H11Protocol):
    """HTTP that closes connections on which no request comes."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._expect_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_request()

    def _expect_request(self) -> None:
        self.loop.call_later(HEADER_SECONDS, self._close_if_idle, self.cycle)

    def _close_if_idle(self, cycle: Any) -> None:
        is_same = self.cycle is cycle and self.transport.get_protocol() is self
        if is_same and not self.transport.is_closing():
            self.transport.close()


def serve(extractor: Extractor, settings: Settings, host: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C; then finish what runs, and end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    config = uvicorn.Config(
        make_app(extractor, settings),
        host,
        port,
        http=ImpatientProtocol,
        access_log=False,  # addresses, and query strings that may hold anything
        log_config=None,
        server_header=False,
        proxy_headers=False,  # else anybody could choose the address that is rate limited
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws_max_size=MOST_MESSAGE_BYTES,
        ws_max_queue=MOST_MESSAGES,
        backlog=512,
    )
    server = uvicorn.Server(config)
    for one in (signal.SIGINT, signal.SIGTERM):  # uvicorn, at its end, raises what it was sent
        signal.signal(one, lambda *_: None)
    with contextlib.suppress(SystemExit):  # it could not start, and has logged why
        server.run()
    if not server.started:
        raise OSError(f"the server could not start at {host}:{port}: choose another --port")
