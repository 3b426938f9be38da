"""The routes of the collector's HTTP service. Their work is done in `collector.service.ingest` and
`collector.analysis`.

`/docs` lists the routes from the OpenAPI document without external scripts or hosts, so that it works offline.
"""

import asyncio
import hmac
import html
import logging
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path as FilePath
from typing import Annotated, Any, Protocol
from urllib.parse import parse_qs

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Cookie, Depends, FastAPI, Header, HTTPException, Path, Query, Request, Response, status
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse
from msgspec import structs
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from collector.analysis import AnalysisOptions, analyse
from collector.capture_files.stored import LAST_NS
from collector.decode.host_capture import HostSource
from collector.decode.incarnations import host_sources, sequences, stored_incarnations
from collector.decode.input_limits import limits_here
from collector.hops.quality_summary import WORST_COUNT, Pairing, read_pairing
from collector.service import ingest, orders_routes, trigger_routes, window_routes
from collector.service.agents import Agents, AgentStatus, Report
from collector.service.arrivals import Arrival, ArrivalLog, ArrivalReading
from collector.service.boundary import AnalysisError, contain_failures, log_failure, note_loop_failure
from collector.service.browsers import BrowserGuard
from collector.service.handshakes import Handshakes, Refusal
from collector.service.ingest import Closing, IncarnationStatus, Outcome, SessionStatus
from collector.service.joining import Joining
from collector.service.live import EDGE_NS, Analyse, Counters, LiveAnalysis, LiveStatus
from collector.service.live import clean as remove_live_leftovers
from collector.service.metrics import metrics_text
from collector.service.orders import Orders, SessionOrders
from collector.service.periods import Periods, SeriesStatus, SeriesSummary
from collector.service.retention import Retention
from collector.service.settings import CollectorSettings
from collector.service.shared_data import SharedData
from collector.service.triggers import Triggers
from collector.service.under_way import UnderWay
from collector.service.windows import WindowRequest, Windows
from collector.trace.data_directory import incarnation_folder, session_folder, trace_folder
from collector.trace.model import TraceInfo
from collector.trace.reading import Trace
from tracer.errors import InputError, ResourceError, TracerError
from tracer.segments import incarnation_stem, segment_name
from tracer.shipping import PACKED, PCAPNG

LOG = logging.getLogger("twintap.collector")
COOKIE = "twintap_collector_token"
PAGE = FilePath(__file__).with_name("agents.html")
POLICY = (
    "default-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "frame-ancestors 'none'"
)
FORM = """<!doctype html><html lang=en><meta charset=utf-8><title>Twintap collector</title>
<style>body{font:16px sans-serif;margin:4em auto;max-width:30em;color-scheme:light dark}</style>
<form method=post action=/token><label>The token that <code>tracer collect</code> was given or made up<br>
<input type=password name=token autofocus autocomplete=off></label> <button>Open</button></form></html>
"""
ACCEPT = f"{PCAPNG}, {PACKED}"
MOST_ANALYSES = 2
"""Sessions analysed in parallel: each needs memory of its own."""

_STATUS = {
    Outcome.STORED: status.HTTP_201_CREATED,
    Outcome.KNOWN: status.HTTP_200_OK,
    Outcome.CONFLICT: status.HTTP_409_CONFLICT,
    Outcome.DAMAGED: status.HTTP_422_UNPROCESSABLE_CONTENT,
    Outcome.TOO_LARGE: status.HTTP_413_CONTENT_TOO_LARGE,
    Outcome.NO_CAPTURE: status.HTTP_415_UNSUPPORTED_MEDIA_TYPE,
}

Session = Annotated[str, Path(description="Name of a capture that goes over several hosts")]
Host = Annotated[str, Path(description="Name of a captured host")]
Incarnation = Annotated[str, Path(description="Start of an agent: its time in UTC, and a random number")]
Connections = Annotated[int, Query(ge=0, le=1_000, description="How many of the worst connections are named")]

FromTime = Annotated[int, Query(ge=0, le=LAST_NS, description="Only what arrived from then on, by this clock, in ns")]
ToTime = Annotated[int, Query(ge=0, le=LAST_NS, description="Only what arrived until then")]


class Received(BaseModel):
    """The outcome of a segment; the agent may delete it if `acknowledged`."""

    outcome: Outcome
    acknowledged: bool


class ClosingMessage(BaseModel):
    """An agent has ended: the number of its last segment, and how many it had to discard."""

    last_number: int = Field(ge=0, le=ingest.LAST_SEGMENT_NUMBER)
    lost_count: int = Field(default=0, ge=0)


class Analysed(BaseModel):
    """The place of a session's trace, and its hosts and number of events."""

    trace: str
    hosts: list[str]
    events_count: int


class ReportReceived(BaseModel):
    """When an agent's report came, by the collector's clock, and what the collector asks of it."""

    received_ns: int
    windows: list[WindowRequest] = []  # that a flight recorder is to send
    orders: Orders = Orders()


class Storage(BaseModel):
    """The disk of the data folder."""

    data: str
    free_bytes: int
    total_bytes: int
    chores: str = ""  # of collectors that share it, who joins, deletes and makes live traces; empty: it is not shared


class Work(Protocol):
    """What goes on beside requests, in threads of its own."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End after what is under way."""


class Health(BaseModel):
    """The service answers."""

    status: str


def create_app(
    settings: CollectorSettings, analysis: Analyse | None = None, handshakes: Handshakes | None = None
) -> FastAPI:
    """Return the service for one data directory; `handshakes` that failed are among its metrics."""
    options = AnalysisOptions(names=settings.names, thresholds=settings.thresholds, limits=limits_here())
    shared = SharedData(settings.data) if settings.shared else None
    may_work = partial(_does_chores, shared)
    agents = Agents(settings.data, version("twintap"), time.time_ns, is_shared=settings.shared)
    live = LiveAnalysis(
        settings.data,
        settings.live_window_seconds,
        settings.live_limit_bytes,
        options=options,
        counters_of=agents.silent_counters,
        publish=settings.shared,
    )
    analysing = UnderWay(shared.session_lock) if shared else UnderWay()
    sessions = settings.data / "sessions"
    periods = Periods(settings.data, settings.periods, options, agents.status, analysing, may_work=may_work)
    retention = Retention(
        sessions, settings.retention, analysing.keep_out, may_work=may_work, needed_from_ns=periods.needed_from_ns
    )
    joining = Joining(sessions, settings.live_window_seconds, analysing.keep_out, may_work=may_work)
    of_part = analysis or partial(_analyse, structs.replace(options, edge_ns=EDGE_NS))
    windows = Windows(settings.data, agents, partial(_make_trace, settings, analysing, of_part), shared=shared)

    triggers = Triggers(settings.triggers, agents, windows, live)

    log = ArrivalLog(shared.arrivals, shared.name) if shared and settings.live_window_seconds else None
    works: list[Work] = [live, windows, triggers, joining, retention, periods]
    if shared and log:
        note, on_begin = partial(_note_arrival, settings.data, live), partial(_note_chores, settings.data)
        works.append(ArrivalReading(shared, note, live.window_ns, on_begin))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_exception_handler(note_loop_failure)
        for work in works:
            work.start()
        yield
        for work in reversed(works):
            await to_thread.run_sync(work.stop)
        for ended in (log, shared):
            if ended:
                ended.close()

    app = FastAPI(
        title="Twintap collector", docs_url=None, redoc_url=None, openapi_url="/openapi.json", lifespan=lifespan
    )
    app.state.live = live
    app.state.shared, app.state.arrivals = shared, log
    app.state.agents = agents
    app.state.windows = windows
    app.state.periods = periods
    app.state.orders = SessionOrders(settings.data)
    app.state.triggers = triggers
    app.state.handshakes = handshakes or Handshakes()
    app.state.clock = time.time_ns
    app.state.settings = settings
    app.state.analysis = analysis or partial(_analyse, options)
    app.state.analysis_of_part = of_part
    app.state.analysing = analysing
    app.state.analyses = CapacityLimiter(MOST_ANALYSES)
    app.include_router(_open)
    app.include_router(_guarded)
    for routes in (window_routes, trigger_routes, orders_routes):
        app.include_router(routes.router, prefix="/api", dependencies=[Depends(_check_token)])
    app.add_exception_handler(TracerError, _one_line)
    app.add_exception_handler(OSError, _system_refuses)
    app.add_middleware(BrowserGuard, local_only=settings.local_only)
    return app


def _settings(request: Request) -> CollectorSettings:
    settings: CollectorSettings = request.app.state.settings
    return settings


Settings = Annotated[CollectorSettings, Depends(_settings)]


def _check_token(
    settings: Settings, authorization: Annotated[str, Header()] = "", shown: Annotated[str, Cookie(alias=COOKIE)] = ""
) -> None:
    if not has_token(settings, authorization, shown):
        raise HTTPException(
            status.HTTP_401_UNAUTHORIZED, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"}
        )


def has_token(settings: CollectorSettings, authorization: str, cookie: str) -> bool:
    """Whether a request shows the token as programs do, or as a browser does after its form."""
    token = settings.token
    return not token or _same(authorization, f"Bearer {token}") or _same(cookie, token)


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


_open = APIRouter()
_guarded = APIRouter(prefix="/api", dependencies=[Depends(_check_token)])


@_guarded.put("/sessions/{session}/hosts/{host}/incarnations/{incarnation}/segments/{number}")
async def put_segment(
    *,
    session: Session,
    host: Host,
    incarnation: Incarnation,
    number: int,
    request: Request,
    response: Response,
    settings: Settings,
    x_content_sha256: Annotated[str, Header(description="SHA-256 of the pcapng, in lower-case hex")],
    content_type: Annotated[str, Header(description=f"{PACKED} for a packed segment")] = PCAPNG,
) -> Received:
    """Store one segment (the body, pcapng or packed) durably. Sending it again is harmless."""
    folder = incarnation_folder(settings.data, session, host, incarnation)
    limit_bytes, is_packed = settings.segment_limit_bytes, content_type == PACKED
    upload = ingest.begin_upload(folder, number, x_content_sha256, limit_bytes=limit_bytes, is_packed=is_packed)
    if upload is None:
        raise HTTPException(status.HTTP_400_BAD_REQUEST, "the number or the hash cannot be one")
    with upload:
        try:
            async for chunk in request.stream():
                if not upload.write(chunk):
                    break
        except ClientDisconnect:
            raise HTTPException(status.HTTP_400_BAD_REQUEST, "the sender went away") from None
        outcome = await to_thread.run_sync(upload.finish)
    if not outcome.acknowledged:
        fields = {"session": session, "host": host, "incarnation": incarnation, "segment": number}
        LOG.warning("segment %d of host %s was refused: %s", number, host, outcome.value, extra=fields)
    if outcome is Outcome.STORED:
        _note_stored(request, (session, host, incarnation, number), upload.place)
    response.status_code, response.headers["Accept"] = _STATUS[outcome], ACCEPT
    return Received(outcome=outcome, acknowledged=outcome.acknowledged)


def _note_stored(request: Request, segment: tuple[str, str, str, int], place: FilePath) -> None:
    """Have a segment in the live trace: here, or where the collector makes it that does the chores."""
    log: ArrivalLog | None = request.app.state.arrivals
    live: LiveAnalysis = request.app.state.live
    if log is None:
        live.note_segment(*segment, place)
    else:
        log.note(*segment)


@_guarded.post("/sessions/{session}/hosts/{host}/incarnations/{incarnation}/close")
def close_incarnation(
    session: Session, host: Host, incarnation: Incarnation, message: ClosingMessage, settings: Settings
) -> IncarnationStatus:
    """Note that an agent has ended."""
    folder = incarnation_folder(settings.data, session, host, incarnation)
    return ingest.close_incarnation(folder, Closing(message.last_number, message.lost_count))


@_guarded.post("/sessions/{session}/hosts/{host}/incarnations/{incarnation}/report")
def take_report(
    session: Session, host: Host, incarnation: Incarnation, report: Report, request: Request
) -> ReportReceived:
    """Note what an agent reports of itself."""
    agents: Agents = request.app.state.agents
    received_ns = agents.note(session, host, incarnation, report)
    windows: Windows = request.app.state.windows
    wanted = windows.requests_for(session, host) if report.history is not None else []
    orders: SessionOrders = request.app.state.orders
    return ReportReceived(received_ns=received_ns, windows=wanted, orders=orders.get(session))


@_guarded.get("/agents")
def list_agents(request: Request) -> list[AgentStatus]:
    """Say how every agent is, and what is wrong with it."""
    agents: Agents = request.app.state.agents
    return agents.status()


@_guarded.get("/refusals")
def list_refusals(request: Request) -> list[Refusal]:
    """Say which connections TLS did not let in: from where, how often, when, why, and what to do; the newest first."""
    handshakes: Handshakes = request.app.state.handshakes
    return handshakes.refusals()


@_guarded.get("/storage")
def storage(settings: Settings, request: Request) -> Storage:
    """Say how much room the disk of the data folder has, and who of the collectors that share it does the chores."""
    usage = shutil.disk_usage(settings.data)
    shared: SharedData | None = request.app.state.shared
    chores = shared.chores_text() if shared else ""
    return Storage(data=str(settings.data), free_bytes=usage.free, total_bytes=usage.total, chores=chores)


@_guarded.get("/sessions")
def list_sessions(settings: Settings) -> list[SessionStatus]:
    """List all sessions."""
    return ingest.sessions(settings.data)


@_guarded.get("/sessions/{session}")
def get_session(session: Session, settings: Settings) -> SessionStatus:
    """Say what is here of one session; no hosts if it is unknown."""
    return ingest.session_status(settings.data, session)


@_guarded.delete("/sessions/{session}", status_code=status.HTTP_204_NO_CONTENT)
def delete_session(session: Session, request: Request, settings: Settings) -> None:
    """Delete all that was received of a session, its trace and its series. Agents that still send begin it anew."""
    if session in request.app.state.analysing:
        raise _is_running(request, session)
    if not ingest.delete_session(settings.data, session):
        raise HTTPException(status.HTTP_404_NOT_FOUND, "there is no such session")
    windows: Windows = request.app.state.windows
    windows.forget(session)
    request.app.state.orders.forget(session)
    request.app.state.periods.forget(session)


@_guarded.get("/sessions/{session}/live")
def live_status(session: Session, request: Request) -> LiveStatus:
    """Say how live analysis of a session stands: its trace of the newest seconds, and how far that is behind."""
    live: LiveAnalysis = request.app.state.live
    return live.status(session) if _does_chores(request.app.state.shared) else live.published_status(session)


@_guarded.get("/sessions/{session}/periods")
def get_periods(session: Session, request: Request) -> SeriesStatus:
    """Say which periods of a session were analysed, what is there of each, and which one comes next."""
    periods: Periods = request.app.state.periods
    return periods.status(session)


@_guarded.get("/series")
def list_series(request: Request) -> list[SeriesSummary]:
    """Say how far the series of all sessions are."""
    periods: Periods = request.app.state.periods
    return periods.summaries()


@_guarded.post("/sessions/{session}/analyse")
async def analyse_session(
    session: Session, request: Request, settings: Settings, from_ns: FromTime = 0, to_ns: ToTime = LAST_NS
) -> Analysed:
    """Make the session's trace of all segments that are here, or that arrived in a time, in place of an earlier one.

    Two sessions are analysed at a time, others wait; a session that is being analysed or waits for it is refused.
    """
    under_way: UnderWay = request.app.state.analysing
    if not await to_thread.run_sync(under_way.begin, session):
        raise _is_running(request, session)
    try:
        counters = request.app.state.agents.silent_counters(session)
        state = request.app.state
        is_part = (from_ns, to_ns) != (0, LAST_NS)
        analysis = state.analysis_of_part if is_part else state.analysis
        make = partial(_analysis_of, session, analysis, settings, counters, from_ns, to_ns)
        return await to_thread.run_sync(make, limiter=request.app.state.analyses)
    finally:
        under_way.end(session)


def _is_running(request: Request, session: str) -> HTTPException:
    under_way: UnderWay = request.app.state.analysing
    holder = under_way.holder(session)
    where = f" at another collector ({holder})" if holder else ""
    return HTTPException(status.HTTP_409_CONFLICT, f"its analysis is running{where}; try again when it is done")


def _does_chores(shared: SharedData | None) -> bool:
    """Whether this collector joins, deletes, gathers and analyses as segments arrive, for all that share its data."""
    return shared is None or shared.does_chores


def _note_chores(data: FilePath) -> None:
    """This collector does the chores from now on: say so, and remove what a killed one left of live traces."""
    LOG.info("this collector joins and deletes segments, gathers windows and makes live traces from now on")
    for line in remove_live_leftovers(data):
        LOG.info("%s", line)


def _note_arrival(data: FilePath, live: LiveAnalysis, arrival: Arrival) -> None:
    """Have a segment that some collector stored in the live trace. Raises: FileNotFoundError if it is gone."""
    session, host, incarnation, number = arrival.session, arrival.host, arrival.incarnation, arrival.number
    folder = incarnation_folder(data, session, host, incarnation)
    place = folder / segment_name(incarnation_stem(host, incarnation), number)
    live.note_segment(session, host, incarnation, number, place)


def _make_trace(
    settings: CollectorSettings, under_way: UnderWay, analysis: Analyse, session: str, counters: Counters
) -> bool:
    """Make a window's trace; False if its analysis is running. Raises: TracerError."""
    if not under_way.begin(session):
        return False
    try:
        _analysis_of(session, analysis, settings, counters)
    except HTTPException as error:
        raise InputError(str(error.detail), "see what each host says") from None
    finally:
        under_way.end(session)
    return True


def _analyse(options: AnalysisOptions, sources: Sequence[HostSource], trace: str, counters: Counters) -> TraceInfo:
    return analyse(sources, trace, options=structs.replace(options, counters=counters))


def _analysis_of(
    session: str,
    analysis: Analyse,
    settings: CollectorSettings,
    counters: Counters,
    from_ns: int = 0,
    to_ns: int = LAST_NS,
) -> Analysed:
    found = stored_incarnations(session_folder(settings.data, session), from_ns=from_ns, to_ns=to_ns)
    sources = host_sources(sequences(found))
    if not sources:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "nothing was received of this session, or in that time")
    trace = trace_folder(settings.data, session)
    trace.parent.mkdir(parents=True, exist_ok=True)
    try:
        info = contain_failures(session, lambda: analysis(sources, str(trace), counters))
    except AnalysisError as error:
        log_failure(error, session)
        raise
    return Analysed(
        trace=str(trace),
        hosts=[host.host for host in info.hosts],
        events_count=sum(host.events_count for host in info.hosts),
    )


@_guarded.get("/sessions/{session}/quality")
def get_quality(session: Session, settings: Settings, connections: Connections = WORST_COUNT) -> Pairing:
    """Say how well the packets of an analysed session were paired, by pair of hosts and for the worst connections."""
    if not ingest.session_status(settings.data, session).analysed:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"there is no trace of it; POST /api/sessions/{session}/analyse")
    return read_pairing(Trace(str(trace_folder(settings.data, session))), connections)


@_guarded.get("/health")
def health(response: Response) -> Health:
    """Say that the service answers and that the token is right; the header Accept, as what segments may be sent."""
    response.headers["Accept"] = ACCEPT
    return Health(status="ok")


@_open.get("/metrics", response_class=PlainTextResponse, dependencies=[Depends(_check_token)])
def metrics(request: Request) -> PlainTextResponse:
    """Give the agents' status, and how many connections TLS refused, to Prometheus."""
    agents: Agents = request.app.state.agents
    handshakes: Handshakes = request.app.state.handshakes
    does_chores = _does_chores(request.app.state.shared)
    periods: Periods = request.app.state.periods
    text = metrics_text(
        agents.status(),
        handshakes.counts(),
        handshakes.last_ns(),
        does_chores=does_chores,
        series=periods.summaries(),
    )
    return PlainTextResponse(text, media_type=CONTENT_TYPE_LATEST)


@_open.get("/", response_class=HTMLResponse, include_in_schema=False)
def page(
    settings: Settings, authorization: Annotated[str, Header()] = "", shown: Annotated[str, Cookie(alias=COOKIE)] = ""
) -> HTMLResponse:
    """The page of agents and sessions; before it, a form for the token."""
    if not has_token(settings, authorization, shown):
        return HTMLResponse(FORM, status.HTTP_401_UNAUTHORIZED)
    return HTMLResponse(PAGE.read_text("utf-8"), headers={"Content-Security-Policy": POLICY})


@_open.post("/token", include_in_schema=False)
async def enter(request: Request, settings: Settings) -> Response:
    """Keep the token that a browser's form gives in a cookie."""
    given = parse_qs((await request.body()).decode("latin-1")).get("token", [""])[0].strip()
    if not has_token(settings, "", given):
        return HTMLResponse(FORM, status.HTTP_401_UNAUTHORIZED)
    response = RedirectResponse("/", status.HTTP_303_SEE_OTHER)
    response.set_cookie(COOKIE, given, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return response


@_open.get("/docs", response_class=HTMLResponse, include_in_schema=False)
def docs(request: Request) -> str:
    """List the routes."""
    return _documentation(request.app.openapi())


def _one_line(_request: Request, error: Exception) -> JSONResponse:
    """An operator's error as JSON: a full disk is 507, what cannot be used 400."""
    assert isinstance(error, TracerError)
    code = status.HTTP_500_INTERNAL_SERVER_ERROR
    if isinstance(error, ResourceError):
        code = status.HTTP_507_INSUFFICIENT_STORAGE
    elif isinstance(error, InputError):
        code = status.HTTP_400_BAD_REQUEST
    return JSONResponse({"detail": str(error)}, code)


def _system_refuses(_request: Request, error: Exception) -> JSONResponse:
    """What the system would not do for us, such as open one more file, as JSON: it may another time."""
    assert isinstance(error, OSError)
    detail = f"the collector cannot read its data: {error.strerror or type(error).__name__}; try again later"
    return JSONResponse({"detail": detail}, status.HTTP_503_SERVICE_UNAVAILABLE)


def _documentation(openapi: dict[str, Any]) -> str:
    rows = [
        f"<tr><td><b>{method.upper()}</b></td><td><code>{html.escape(path)}</code></td>"
        f"<td>{html.escape(operation.get('description', ''))}</td></tr>"
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    ]
    title = html.escape(openapi["info"]["title"])
    style = (
        "body{font:16px sans-serif;margin:2em;color-scheme:light dark}td{padding:.3em 1em .3em 0;vertical-align:top}"
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{style}</style>"
        f"<h1>{title}</h1><p>Full description: <a href=/openapi.json>openapi.json</a></p>"
        f"<table>{''.join(rows)}</table></html>"
    )
