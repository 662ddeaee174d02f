"""Anytime verification over a WebSocket: evidence while somebody speaks, and an end when sure.

The client sends a JSON object {"name": ...}, then samples as binary messages (16 kHz, 16-bit
little endian, mono), and {"end": true} if it has no more. Each answer is about all samples so far,
computed as for a recording of them: features are normalized over the whole of it, so nothing can be
carried over from one answer to the next.
"""

import asyncio
import contextlib
import json
import math
from typing import Any

import numpy as np
from fastapi import WebSocket, WebSocketDisconnect
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from simple_spk.inference.decisions import LITTLE_SPEECH_SECONDS, Decision, heard_seconds, log_odds
from simple_spk.inference.extractor import Extractor, Side
from simple_spk.serve.engine import STREAM_RATE, Engine
from simple_spk.serve.gate import Limits, address_of, bearer, headers_of

LONGEST_SECONDS = 60.0
LONGEST_WAIT_SECONDS = 30.0  # for the next message
LONGEST_TALK_SECONDS = 180.0  # that these samples may take to come
STEP_SECONDS, STEP_SHARE = 0.25, 0.05  # new audio between two answers; the work stays linear
SURE_RATIO = 10.0  # moderate evidence beyond the threshold, in the words of decisions.SURENESS
MOST_STREAMS = 64
OPTIONS = {"name", "prior", "false_accept_rate", "sure", "key"}
WRONG_CALL, REFUSED, BUSY = 1008, 1008, 1013  # codes of WebSockets


class Samples:
    """The samples of a stream, which come while answers are computed."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.bytes = 0
        self.is_ended = False
        self.news = asyncio.Event()

    @property
    def seconds(self) -> float:
        """How much has come."""
        return self.bytes // 2 / STREAM_RATE

    def waveform(self) -> np.ndarray:
        """All of it (samples,)."""
        held = b"".join(self.parts)
        self.parts = [held]
        return np.frombuffer(held[: len(held) // 2 * 2], "<i2")

    async def read(self, websocket: WebSocket) -> None:
        """Take messages until the end."""
        with contextlib.suppress(WebSocketDisconnect):
            while not self.is_ended:
                message = await asyncio.wait_for(websocket.receive(), LONGEST_WAIT_SECONDS)
                if message.get("bytes"):
                    self.parts.append(message["bytes"])
                    self.bytes += len(message["bytes"])
                is_full = self.seconds >= LONGEST_SECONDS
                is_told = message["type"] == "websocket.disconnect" or bool(message.get("text"))
                self.is_ended = is_full or is_told
                self.news.set()
                if message["type"] == "websocket.disconnect":
                    raise WebSocketDisconnect(message.get("code", 1000))


async def converse(
    websocket: WebSocket, extractor: Extractor, engine: Engine, limits: Limits
) -> None:
    """Serve one stream from its first message to its end."""
    try:
        limits.check_origin(headers_of(websocket.scope))
    except HTTPException:
        return await websocket.close(REFUSED)  # before it is accepted: an HTTP 403
    await websocket.accept()
    try:
        options = await _options(websocket)
        key = bearer(headers_of(websocket.scope)) or options.get("key")
        limits.check_key(key, "verify", address_of(websocket.scope))
        voice = await run_in_threadpool(extractor.voices.get, options["name"])
        if voice is None:
            raise HTTPException(404, f"nobody is enrolled as {options['name']!r}")
        if extractor.model.calibration is None:
            raise HTTPException(422, "the model is not calibrated: it never knows when it is sure")
        if engine.streams >= MOST_STREAMS:
            raise HTTPException(503, "too many streams at once: try again later")
    except (HTTPException, ValueError) as error:
        detail = error.detail if isinstance(error, HTTPException) else str(error)
        await websocket.send_json({"error": detail})
        is_busy = isinstance(error, HTTPException) and error.status_code in (429, 503)
        return await websocket.close(BUSY if is_busy else WRONG_CALL)
    except WebSocketDisconnect:
        return None
    engine.streams += 1
    try:
        await _listen(websocket, extractor, engine, Side(voice, [], ()), options)
    except WebSocketDisconnect:
        pass
    finally:
        engine.streams -= 1
    return None


async def _options(websocket: WebSocket) -> dict[str, Any]:
    """The first message, checked."""
    try:
        text = await asyncio.wait_for(websocket.receive_text(), LONGEST_WAIT_SECONDS)
        options = json.loads(text)
        if unknown := set(options) - OPTIONS:
            raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
        if not (isinstance(options["name"], str) and isinstance(options.get("key"), str | None)):
            raise ValueError("name and key must be text")
        for name in ("prior", "false_accept_rate"):
            if options.get(name) is not None:
                options[name] = float(options[name])
                log_odds(options[name])
        options["sure"] = float(options.get("sure", SURE_RATIO))
        if not 1.0 <= options["sure"] < math.inf:
            raise ValueError("sure is a likelihood ratio of at least 1")
        return options
    except (
        ValueError, KeyError, TypeError, OverflowError, RecursionError, asyncio.TimeoutError
    ) as error:  # fmt: skip
        what = 'the first message is a JSON object such as {"name": "Ann"}'
        raise ValueError(f"{what}, with {', '.join(sorted(OPTIONS))} ({error})") from error


async def _listen(
    websocket: WebSocket,
    extractor: Extractor,
    engine: Engine,
    claimed: Side,
    options: dict[str, Any],
) -> None:
    """Answer until the evidence suffices or the stream ends."""
    samples = Samples()
    await websocket.send_json({"sample_rate": STREAM_RATE, "longest_seconds": LONGEST_SECONDS})
    talk = asyncio.wait_for(samples.read(websocket), LONGEST_TALK_SECONDS)
    reading = asyncio.create_task(talk)
    answered = 0.0
    try:
        while True:
            step = max(STEP_SECONDS, STEP_SHARE * answered)
            while samples.seconds < answered + step and not samples.is_ended:
                samples.news.clear()
                waiting = asyncio.create_task(samples.news.wait())
                await asyncio.wait({waiting, reading}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if reading.done():
                    break
            if reading.done() and reading.exception() is not None:
                break
            is_last, answered = samples.is_ended, samples.seconds
            update = await running_decision(extractor, engine, claimed, samples.waveform(), options)
            update["done"] = update["is_sure"] or is_last
            await websocket.send_json(update)
            if update["done"]:
                break
    finally:
        reading.cancel()
    with contextlib.suppress(RuntimeError):  # the client closed it first
        await websocket.close(1000)


async def running_decision(
    extractor: Extractor,
    engine: Engine,
    claimed: Side,
    waveform: np.ndarray,
    options: dict[str, Any],
) -> dict[str, Any]:
    """The decision of ``Extractor.verify`` about the samples so far, and what is missing."""
    if not len(waveform):
        return {"seconds": 0.0, "is_sure": False, "missing": "speech: nothing was heard yet"}
    (heard,) = await engine.listen([[waveform]])
    rule = (options.get("prior"), options.get("false_accept_rate"))
    decision = await run_in_threadpool(extractor.decide, claimed, heard, *rule)
    missing = missing_evidence(decision, options["sure"])
    return {
        **decision.plain(),
        "seconds": len(waveform) / STREAM_RATE,
        "is_sure": missing is None,
        "missing": missing,
    }


def missing_evidence(decision: Decision, sure: float) -> str | None:
    """What a decision needs in order to be sure; None if it is."""
    heard = sum(map(heard_seconds, decision.qualities[1]))
    if decision.score is None or heard < LITTLE_SPEECH_SECONDS:
        return f"{LITTLE_SPEECH_SECONDS - heard:.1f} s more of speech"
    if decision.accepted is None:
        return decision.reason
    assert decision.log_likelihood_ratio is not None and decision.threshold is not None
    beyond = decision.log_likelihood_ratio - decision.threshold
    margin = math.log(sure)
    if abs(beyond) >= margin:
        return None
    return (
        f"a log likelihood ratio of {decision.threshold + margin:.2f} to accept, or of "
        f"{decision.threshold - margin:.2f} to reject; it is {decision.log_likelihood_ratio:.2f}"
    )
