"""The layout of a collector's data directory.

    DATA/sessions/<session>/<host>/<incarnation>/    segments as received (`collector.service.ingest`)
    DATA/sessions/<session>/live/                    the trace of the newest seconds (`collector.service.live`)
    DATA/traces/<session>/                           the trace
    DATA/series/<session>/                           the traces of its periods (`collector.service.periods`)

Names are checked (`tracer.segments`), so that no path leaves the directory.
"""

from pathlib import Path

from tracer.errors import InputError
from tracer.segments import INCARNATION_PATTERN, NAME_PATTERN, check_incarnation, check_name

LIVE_ERROR_FILE = ".live.error"
LIVE_STATUS_FILE = ".live.status"
LIVE_FOLDER = "live"
"""It lies beside the hosts of a session, so no host can have this name."""


def session_folder(data: Path, session: str) -> Path:
    """Return where a session's segments are. Raises: InputError for what is no name."""
    return data / "sessions" / check_name("session", session)


def trace_folder(data: Path, session: str) -> Path:
    """Return where a session's trace is. Raises: InputError for what is no name."""
    return data / "traces" / check_name("session", session)


def series_folder(data: Path, session: str) -> Path:
    """Return where the series of a session's periods is. Raises: InputError for what is no name."""
    return data / "series" / check_name("session", session)


def live_folder(data: Path, session: str) -> Path:
    """Return where the trace of a session's newest seconds is. Raises: InputError for what is no name."""
    return session_folder(data, session) / LIVE_FOLDER


def live_error_file(data: Path, session: str) -> Path:
    """Return the note of why the last live round made no trace. Raises: InputError for what is no name."""
    return session_folder(data, session) / LIVE_ERROR_FILE


def live_status_file(data: Path, session: str) -> Path:
    """Return where the last live round's status is for other collectors. Raises: InputError for what is no name."""
    return session_folder(data, session) / LIVE_STATUS_FILE


def host_folder(data: Path, session: str, host: str) -> Path:
    """Return where a host's segments are. Raises: InputError for what is no name."""
    if host == LIVE_FOLDER:
        raise InputError(f"no host can be called {host!r} here", "give the agent another name with --host")
    return session_folder(data, session) / check_name("host", host)


def incarnation_folder(data: Path, session: str, host: str, incarnation: str) -> Path:
    """Return where an incarnation's segments are. Raises: InputError for what is no name."""
    return host_folder(data, session, host) / check_incarnation(incarnation)


def host_folders(session: Path) -> list[Path]:
    """Return the folders of the hosts in a session's folder; none if that is not there."""
    return sorted(path for path in session.iterdir() if _is_host(path)) if session.is_dir() else []


def incarnation_folders(folder: Path) -> list[Path]:
    """Return the folders of a host's incarnations, in the order of their starts."""
    return sorted(path for path in folder.iterdir() if INCARNATION_PATTERN.fullmatch(path.name))


def _is_host(path: Path) -> bool:
    """Whether it is a host's folder, not the live trace or one that is being written."""
    return path.is_dir() and path.name != LIVE_FOLDER and NAME_PATTERN.fullmatch(path.name) is not None
