"""Captures at URLs (`s3://`, `https://`, … of fsspec): fetched into a folder of this run, and read there as local ones.

Each file is fetched once, by whatever process is free; a capture may be read several times until its hosts and keys are
known. The trace names the URLs.
"""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

from collector.decode.sources import CAPTURE_NAME, COMMAND_FILE, GIVE_CAPTURES, SAMPLES_FILE
from collector.execution.engine import Engine
from collector.execution.shared_folder import whole_file
from collector.trace.object_errors import library_errors, object_errors
from collector.trace.objects import in_bytes, open_file_system
from collector.trace.parquet_store import HTTP
from tracer.errors import InputError, ResourceError, TracerError
from tracer.scratch import Scratch
from tracer.secret_rules import without_secrets

DOING = "read the capture"


class _Fetch(Struct, frozen=True):
    """A file to be fetched."""

    url: str
    size: int
    to: Path

    @classmethod
    def do(cls, job: "_Fetch") -> None:
        """Fetch it. Raises: `InputError`, `ResourceError`."""
        fs, path = open_file_system(job.url, DOING)
        with whole_file(job.to) as part, object_errors(job.url, DOING):
            fs.get_file(path, str(part))


class FarCaptures:
    """The captures of a command line, those at URLs fetched. A context manager: on exit, the fetched ones are removed.

    `arguments`, in place of those given, name local files and folders; `names`: the URL of each fetched file, by path.
    Arguments: `parent`, the folder in which they are for as long; `engine`, which fetches several at a time.
    Raises: `InputError` for a URL that cannot be read, or where no capture is; `ResourceError` if there is no room.
    """

    def __init__(self, arguments: Sequence[str], parent: Path, engine: Engine) -> None:
        self.arguments, self.names = list(arguments), dict[str, str]()
        self._parent, self._folder = parent, Path()
        self._open = ExitStack()
        with ExitStack() as opened:
            jobs = [job for place in range(len(arguments)) for job in self._find(place, opened)]
            if jobs:
                self._fetch(jobs, engine)
            self._open = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
        if isinstance(error, TracerError):  # what was said of a file there is said of its URL
            for path, url in self.names.items():
                error.what = error.what.replace(path, url)
                error.next_step = error.next_step.replace(path, url)

    def _find(self, place: int, opened: ExitStack) -> list[_Fetch]:
        """What is to be fetched of an argument, which then names where it will be."""
        argument = self.arguments[place]
        host, sign, rest = argument.partition("=")
        prefix, url = (f"{host}=", rest) if sign and "://" not in host else ("", argument)
        if "://" not in url or Path(argument).exists():
            return []
        if url.startswith("file://"):
            self.arguments[place] = f"{prefix}{open_file_system(url, DOING)[1]}"
            return []
        if not self._folder.name:
            scratch = Scratch(self._parent)
            opened.callback(scratch.cleanup)
            self._folder = Path(scratch.name)
        jobs, local = _files_at(url, self._folder / str(place))
        self.arguments[place] = f"{prefix}{local}"
        return jobs

    def _fetch(self, jobs: Sequence[_Fetch], engine: Engine) -> None:
        needed, free = sum(job.size for job in jobs), shutil.disk_usage(self._folder).free
        if needed > free:
            what = f"the captures take {in_bytes(needed)}, and {self._folder} has room for {in_bytes(free)}"
            raise ResourceError(what, "free some space there, or analyse a part of them")
        for folder in {job.to.parent for job in jobs}:
            folder.mkdir(parents=True, exist_ok=True)
        for _ in engine.results(_Fetch.do, jobs):
            pass
        self.names = {str(job.to): without_secrets(job.url) for job in jobs}


def _files_at(url: str, folder: Path) -> tuple[list[_Fetch], Path]:
    """The files of a URL that are to be fetched into `folder`, and where the file, or the folder, will be."""
    fs, root = open_file_system(url, DOING)
    found: dict[str, Any] = {}
    try:
        with object_errors(url, DOING):
            if fs.isfile(root):
                to = folder / PurePosixPath(root.partition("?")[0]).name  # what follows may be a signature
                return [_Fetch(url, _size(fs.info(root)), to)], to
            if url.startswith(HTTP):
                fs.info(root)  # raises, with its cause: what answers is a file
            found = fs.find(root, detail=True)
    except (FileNotFoundError, NotADirectoryError) as error:
        if isinstance(error.__cause__, library_errors()) and not isinstance(error.__cause__, FileNotFoundError):
            with object_errors(url, DOING):
                raise error.__cause__ from None
    scheme = url.partition("://")[0]
    jobs = []
    for path, about in sorted(found.items()):
        name = PurePosixPath(path).name
        if CAPTURE_NAME.search(name) or name in (COMMAND_FILE, SAMPLES_FILE):
            below = PurePosixPath(path).relative_to(root)
            jobs.append(_Fetch(f"{scheme}://{path.lstrip('/')}", _size(about), folder / below))
    if not jobs:
        raise InputError(f"{without_secrets(url)} holds no capture", GIVE_CAPTURES)
    return jobs, folder


def _size(about: Mapping[str, Any]) -> int:
    return int(about.get("size") or 0)
