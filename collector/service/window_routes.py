"""The routes of windows: to ask for one, and to see what became of it (`collector.service.windows`)."""

from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Request, status
from pydantic import BaseModel, Field

from collector.service.request_search import find_request
from collector.service.windows import Window, Windows
from collector.trace.data_directory import live_folder, trace_folder
from tracer.errors import InputError

DAY_SECONDS = 86_400.0
AROUND_SECONDS = 30.0

Seconds = Annotated[float, Field(ge=0, le=DAY_SECONDS)]
Session = Annotated[str, Path(description="Name of a capture that goes over several hosts")]


class WindowWish(BaseModel):
    """Which time: `from_ns` and `to_ns`, or the `last_seconds`, or around a request, by the collector's clock."""

    from_ns: int | None = Field(default=None, ge=0)
    to_ns: int | None = Field(default=None, ge=0)
    last_seconds: Seconds | None = None
    request: str = Field(default="", max_length=500, description="An id, or what the viewer's search takes")
    only: str = Field(
        default="", max_length=200, description="Only connections in which this stands, or with these ADDRESS:PORT"
    )
    before_seconds: Seconds = AROUND_SECONDS
    after_seconds: Seconds = AROUND_SECONDS
    reason: str = Field(default="", max_length=500)


router = APIRouter()


def _windows(request: Request) -> Windows:
    windows: Windows = request.app.state.windows
    return windows


@router.post("/sessions/{session}/windows", status_code=status.HTTP_201_CREATED)
def open_window(session: Session, wish: WindowWish, request: Request) -> Window:
    """Gather the packets of a time from all hosts of a session, keep them, and make their trace."""
    from_ns, to_ns, reason = _times(session, wish, request)
    if wish.only and not wish.reason:
        reason = f"{reason}, connections of {wish.only}"
    return _windows(request).open(session, from_ns, to_ns, wish.reason or reason, only=wish.only)


@router.get("/windows")
def list_windows(request: Request) -> list[Window]:
    """List all windows, the newest first."""
    return _windows(request).all()


@router.get("/windows/{window}")
def get_window(window: str, request: Request) -> Window:
    """Say what became of a window."""
    found = _windows(request).get(window)
    if found is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "there is no such window")
    return found


def _times(session: str, wish: WindowWish, request: Request) -> tuple[int, int, str]:
    """Beginning and end of what is asked for, and why. Raises: InputError."""
    now_ns: int = request.app.state.clock()
    if wish.request:
        return _around(session, wish, request)
    if wish.last_seconds is not None:
        return now_ns - round(wish.last_seconds * 1e9), now_ns, f"the last {wish.last_seconds:g} s"
    if wish.from_ns is None or wish.to_ns is None:
        raise InputError("which time is not said", "give from_ns and to_ns, last_seconds, or request")
    return wish.from_ns, wish.to_ns, "a time that was asked for"


def _around(session: str, wish: WindowWish, request: Request) -> tuple[int, int, str]:
    """The time around a request."""
    data: FilePath = request.app.state.settings.data
    windows = [trace_folder(data, each.window) for each in _windows(request).all(session)]
    traces = [live_folder(data, session), trace_folder(data, session), *windows]
    agents = [each for each in request.app.state.agents.status() if each.session == session]
    found = find_request(wish.request, map(str, traces), agents)
    if found is None:
        raise InputError(
            f"no request {wish.request} is in the traces of session {session}",
            "recorders send a sample only: give the time instead, from the client's log",
        )
    from_ns, to_ns, title = found
    return from_ns - round(wish.before_seconds * 1e9), to_ns + round(wish.after_seconds * 1e9), f"around {title}"
