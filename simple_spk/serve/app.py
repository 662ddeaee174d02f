"""The service: endpoints that answer with the library's own results."""

import contextlib
import functools
import logging
import re
import reprlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, File, Form, HTTPException, Request, UploadFile, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool

from simple_spk import __version__
from simple_spk.data.audio import AudioError
from simple_spk.inference.extractor import MOST_CANDIDATES, Extractor, Side
from simple_spk.inference.voice_stores.voice import LARGEST_NAME, Voice
from simple_spk.report.page import rendered
from simple_spk.serve.answers import (
    ConversationAnswer,
    DecisionAnswer,
    EmbeddingsAnswer,
    ErrorAnswer,
    HealthAnswer,
    IdentificationAnswer,
    VoiceAnswer,
)
from simple_spk.serve.decoding import Decoders
from simple_spk.serve.engine import BusyError, Engine, Heard, Upload
from simple_spk.serve.gate import Gate, Limits
from simple_spk.serve.request_metrics import RequestMetrics
from simple_spk.serve.stream import converse

FOLDER = Path(__file__).parent
MOST_FILES = 10  # of a side
SPOOL = 2**20
# Nobody else's scripts, styles or frames; sounds that the page itself made.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "media-src 'self' blob:; img-src 'self' data:; base-uri 'none'; form-action 'none'"
)
# FastAPI would hand validation errors, with what the client sent, to the logs of OpenTelemetry.
SILENT = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)
WRONG = {code: {"model": ErrorAnswer} for code in (401, 403, 408, 413, 422, 429, 503)}

logger = logging.getLogger(__name__)
Recordings = Annotated[list[UploadFile], File(description="recordings of one speaker")]
Prior = Annotated[float | None, Form(gt=0, lt=1, description="as in simple-spk --prior")]
Rate = Annotated[float | None, Form(gt=0, lt=1, description="as in simple-spk --far")]
Count = Annotated[int | None, Form(ge=1, le=1000)]
Name = Annotated[str, Form(min_length=1, max_length=LARGEST_NAME)]


@dataclass
class Settings:
    """How the service works; ``limits`` are those of clients."""

    limits: Limits
    longest_seconds: float = 600.0  # of a recording
    decode_seconds: float = 20.0  # that decoding may take
    workers: int = 2  # decoding processes
    places: int = 64  # requests that may wait, or be worked on, at once
    is_builtin: bool = True  # whether the page says what the built-in model can do


class Service:
    """What the endpoints share."""

    def __init__(self, extractor: Extractor, settings: Settings) -> None:
        self.extractor, self.settings, self.metrics = extractor, settings, RequestMetrics()
        self.engine: Engine | None = None
        self.folder: Path | None = None

    @contextlib.asynccontextmanager
    async def running(self, _app: Any) -> AsyncIterator[None]:
        """Processes, threads and the folder of uploads, as long as the server runs."""
        settings, rate = self.settings, self.extractor.sample_rate
        with tempfile.TemporaryDirectory(prefix="simple_spk_") as folder:
            self.folder = Path(folder)
            limits = (settings.longest_seconds, settings.decode_seconds)
            decoders = Decoders(settings.workers, rate, *limits)
            self.engine = Engine(self.extractor, decoders, settings.workers, settings.places)
            try:
                yield
            finally:
                await run_in_threadpool(self.engine.close)

    @contextlib.asynccontextmanager
    async def decoded(self, *sides: Sequence[UploadFile]) -> AsyncIterator["Received"]:
        """The uploads of each side, decoded, with a place in the queue; removed at the end."""
        assert self.engine is not None
        for side in sides:
            if not 1 <= len(side) <= MOST_FILES:
                raise HTTPException(422, f"send 1 to {MOST_FILES} recordings, not {len(side)}")
        with self.engine.place():
            folder = Path(await run_in_threadpool(tempfile.mkdtemp, dir=self.folder))
            try:
                uploads = [await run_in_threadpool(_saved, side, folder) for side in sides]
                received = Received(self.engine, folder, uploads)
                try:
                    await received.decode()
                    yield received
                except ValueError as error:
                    raise HTTPException(422, received.named(str(error))) from error
            finally:
                await run_in_threadpool(shutil.rmtree, folder, ignore_errors=True)

    def voice(self, name: str) -> Voice:
        """An enrolled voice."""
        voice = self.extractor.voices.get(name)
        if voice is None:
            raise HTTPException(404, f"nobody is enrolled as {name!r}")
        return voice


class Received:
    """Recordings of a request, by sides."""

    def __init__(self, engine: Engine, folder: Path, uploads: list[list[Upload]]) -> None:
        self.engine, self.folder, self.uploads = engine, folder, uploads
        self.rates: list[int] = []

    async def decode(self) -> None:
        """Decode all of them."""
        self.rates = await self.engine.decode([one for side in self.uploads for one in side])

    def paths(self) -> list[list[Path]]:
        """The decoded files of each side."""
        return [[one.decoded for one in side] for side in self.uploads]

    async def heard(self) -> Heard:
        """What the extractor heard; qualities have the sample rates of the uploads."""
        found = await self.engine.listen(self.paths())
        rates = iter(self.rates)
        for place, (side, uploads) in enumerate(zip(found, self.uploads, strict=True)):
            own = [next(rates) for _ in uploads]
            if isinstance(side, Side):
                pairs = zip(side.qualities, own, strict=True)
                qualities = tuple(quality._replace(sample_rate=rate) for quality, rate in pairs)
                found[place] = side._replace(qualities=qualities)
        return found

    def named(self, message: str) -> str:
        """A message with the names that the client gave in place of our files."""
        for one in (one for side in self.uploads for one in side):
            for path in (one.path, one.decoded):
                message = message.replace(str(path), one.name)
        return message


def _saved(files: Sequence[UploadFile], folder: Path) -> list[Upload]:
    """Uploads as files of their own."""
    saved = []
    for file in files:
        place = Path(tempfile.mkdtemp(dir=folder))
        name = re.sub(r"[^\w .()-]", "_", file.filename or "")[-60:].strip() or "recording"
        with (place / "upload").open("wb") as target:
            shutil.copyfileobj(file.file, target, SPOOL)
        saved.append(Upload(name, place / "upload", place / f"{name}.wav"))
    return saved


async def _check_fields(request: Request) -> None:
    """Refuse fields that an endpoint does not have: a misspelled limit would not be one."""
    known = [one.alias for one in request.scope["route"].dependant.body_params]
    for name in await request.form():
        if name not in known:
            what = f"{reprlib.repr(name)} is no field of {request.url.path}"
            raise HTTPException(422, f"{what}, which has {', '.join(known)}")


FORM: dict[str, Any] = {"responses": WRONG, "dependencies": [Depends(_check_fields)]}


def _problem(message: str) -> str:
    """What is wrong with a field of a form, in words for its sender."""
    return "send a file (curl: FIELD=@FILE)" if "UploadFile" in message else message


def make_app(extractor: Extractor, settings: Settings) -> FastAPI:
    """The ASGI application of an extractor, whose voices are those to enroll into."""
    service = Service(extractor, settings)
    app = FastAPI(
        title="simple_spk",
        version=__version__,
        description="Speaker verification. Probabilities are estimates; see the page at /.",
        lifespan=service.running,
        docs_url=None,  # its scripts come from elsewhere
        redoc_url=None,
        telemetry=SILENT,
    )
    app.add_middleware(Gate, limits=settings.limits, metrics=service.metrics)

    @app.exception_handler(BusyError)
    async def busy(_request: Request, error: BusyError) -> JSONResponse:
        headers = {"Retry-After": str(error.retry_seconds)}
        return JSONResponse({"detail": str(error)}, 503, headers)

    @app.exception_handler(RequestValidationError)
    async def wrong(_request: Request, error: RequestValidationError) -> JSONResponse:
        parts = (f"{one['loc'][:2][-1]}: {_problem(one['msg'])}" for one in error.errors())
        return JSONResponse({"detail": "; ".join(parts)}, 422)

    @app.exception_handler(OSError)
    async def broken(_request: Request, error: OSError) -> JSONResponse:
        logger.error("%s", type(error).__name__)  # its message may have the name of a voice
        return JSONResponse({"detail": "the disk or the store of voices does not work"}, 503)

    @app.exception_handler(Exception)
    async def failed(_request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": "an error of the server, which its log has"}, 500)

    @app.post("/verify", response_model=DecisionAnswer, **FORM)
    async def verify(
        second: Recordings,
        first: Annotated[list[UploadFile], File(description="or an enrolled voice, by name")] = [],  # noqa: B006
        name: Annotated[str | None, Form(max_length=LARGEST_NAME)] = None,
        prior: Prior = None,
        false_accept_rate: Rate = None,
    ) -> Any:
        """Whether two recordings, or a recording and an enrolled voice, have the same speaker."""
        if bool(first) == (name is not None):
            raise HTTPException(422, "send recordings as first, or the name of an enrolled voice")
        voice = None if name is None else await run_in_threadpool(service.voice, name)
        async with service.decoded(*([first] if voice is None else []), second) as received:
            heard = await received.heard()
            claimed = heard[0] if voice is None else Side(voice, [], ())
            decide = (claimed, heard[-1], prior, false_accept_rate)
            decision = await run_in_threadpool(extractor.decide, *decide)
            return decision._replace(reason=received.named(decision.reason)).plain()

    @app.post("/embed", response_model=EmbeddingsAnswer, **FORM)
    async def embed(recordings: Recordings) -> Any:
        """The embedding of each recording."""
        async with service.decoded(*([one] for one in recordings)) as received:
            found = []
            for side in await received.heard():
                if not isinstance(side, Side):
                    raise side
                found.append(side.voice.embedding.tolist())
            return {"embeddings": found, "model": extractor.fingerprint}

    @app.post("/enroll", response_model=VoiceAnswer, **FORM)
    async def enroll(name: Name, recordings: Recordings) -> Any:
        """Enroll a speaker; recordings of an enrolled name are added to it."""
        async with service.decoded(recordings) as received:
            (side,) = await received.heard()
            checked = await run_in_threadpool(extractor.checked_side, name, side)
            voice = await run_in_threadpool(extractor.voices.add, name, checked)
            return {"name": name, **voice.plain()}

    @app.post("/identify", response_model=IdentificationAnswer, **FORM)
    async def identify(
        recordings: Recordings,
        prior: Prior = None,
        false_accept_rate: Rate = None,
        top: Annotated[int, Form(ge=1, le=1000)] = MOST_CANDIDATES,
    ) -> Any:
        """The enrolled speaker of one or several recordings, or nobody."""
        async with service.decoded(recordings) as received:
            heard = await received.heard()
            rule = (heard, prior, false_accept_rate, top)
            (found,) = await run_in_threadpool(extractor.recognize, *rule)
            if isinstance(found, AudioError | OSError):
                raise found
            return found._replace(reason=received.named(found.reason)).plain()

    @app.post("/diarize", response_model=ConversationAnswer, **FORM)
    async def diarize(
        recording: Annotated[UploadFile, File(description="a conversation")],
        speakers: Count = None,
        min_speakers: Count = None,
        max_speakers: Count = None,
        same_prior: Annotated[float, Form(gt=0, lt=1)] = 0.5,
        prior: Prior = None,
        false_accept_rate: Rate = None,
    ) -> Any:
        """Who speaks when; speakers who are enrolled have their names."""
        async with service.decoded([recording]) as received:
            ((path,),) = received.paths()
            options = (speakers, min_speakers, max_speakers, same_prior, prior, false_accept_rate)
            assert service.engine is not None
            task = functools.partial(extractor.diarize, path, None, *options)
            found = await service.engine.run_long(task)
            return found.plain() | {"recording": received.uploads[0][0].name}

    @app.get("/voices", response_model=list[VoiceAnswer], responses=WRONG)
    def voices() -> Any:
        """The enrolled voices."""
        return [{"name": name, **voice.plain()} for name, voice in extractor.voices.each()]

    @app.get("/health", response_model=HealthAnswer)
    async def health() -> Any:
        """Whether the service works."""
        engine = service.engine
        if engine is None or not engine.is_alive:
            raise HTTPException(503, "the service does not work: start it again")
        return {
            "status": "ok",
            "version": __version__,
            "model": extractor.fingerprint,
            "waiting": engine.waiting,
            "places": settings.places,
            "needs_key": settings.limits.keys is not None,
        }

    @app.get("/metrics", response_class=PlainTextResponse, responses=WRONG)
    async def metrics() -> str:
        """Counts and times of requests for Prometheus."""
        engine = service.engine
        assert engine is not None
        gauges = {
            "waiting": engine.waiting,
            "streams": engine.streams,
            "batches_total": engine.batches,
            "batched_requests_total": engine.batched,
        }
        return service.metrics.text(gauges)

    page = rendered(
        "page.html.j2",
        FOLDER,
        title="Voices",
        content_policy=POLICY,
        needs_key=settings.limits.keys is not None,
        is_builtin=settings.is_builtin,
    )
    script = (FOLDER / "page.js").read_text(encoding="utf-8")

    @app.get("/", include_in_schema=False)
    async def index() -> HTMLResponse:
        return HTMLResponse(
            page, headers={"Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'"}
        )

    @app.get("/page.js", include_in_schema=False)
    async def page_script() -> PlainTextResponse:
        return PlainTextResponse(script, media_type="text/javascript")

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return Response(status_code=204)

    @app.websocket("/stream")
    async def stream(websocket: WebSocket) -> None:
        assert service.engine is not None
        await converse(websocket, extractor, service.engine, settings.limits)

    return app
