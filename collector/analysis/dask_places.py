"""An analysis on the workers of a Dask cluster, which exchange partitions through a folder that all share."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

import dask.config
from msgspec import Struct

from collector.analysis.places import SharedPlaces
from collector.execution.dask_engine import SCHEME, DaskEngine
from collector.execution.shared_folder import GIVE_ANOTHER
from collector.execution.spill import spill_errors
from collector.services import services
from tracer import secret_rules
from tracer.errors import InputError
from tracer.scratch import Scratch


def scheduler_address(engine: str) -> str | None:
    """The address of a scheduler, for Dask's client, from an engine's URL; None for `dask://`, a cluster started here.

    It is one with TLS if Dask's own configuration names certificates (`distributed.comm.tls`).

    Raises: `InputError` for what is no such URL.
    """
    scheme, separator, place = engine.partition("://")
    try:
        port = urlsplit(f"//{place}").port
    except ValueError:
        port = None
    if scheme != SCHEME or not separator or (place and port is None):
        raise InputError(
            f"{engine!r} is no engine", "give dask://HOST:PORT of a scheduler, or dask:// to start one here"
        )
    protocol = "tls" if dask.config.get("distributed.comm.tls.ca-file", None) else "tcp"
    return f"{protocol}://{place}" if place else None


class DaskPlaces(SharedPlaces):
    """`Places` on a Dask cluster.

    Arguments: `scheduler`, as from `scheduler_address`; `workers` of a cluster to be started here (None: one for each
    core); `scratch`, a folder that all workers share, by default that of the trace; `key_logs`, files with secrets of
    TLS.
    Raises: as `DaskEngine`; `ResourceError` if nothing can be written to the folder.
    """

    def __init__(
        self,
        trace_url: str,
        scheduler: str | None,
        workers: int | None = None,
        scratch: Path | None = None,
        key_logs: Sequence[Path] = (),
    ) -> None:
        beside = Path(trace_url).parent if "://" not in trace_url else Path(tempfile.gettempdir())
        parent = (scratch or beside).absolute()
        with ExitStack() as opened:
            if scratch is not None and not parent.is_dir():
                raise InputError(f"{scratch} is no folder", "make it, or give another one with --scratch")
            with spill_errors(parent, GIVE_ANOTHER):
                parent.mkdir(parents=True, exist_ok=True)
                made = Scratch(parent)
            opened.callback(made.cleanup)
            folder = Path(made.name)
            engine = opened.enter_context(DaskEngine(scheduler, folder, workers, _OperatorsChoices.here().apply))
            super().__init__(trace_url, folder, engine, key_logs)
            self._opened = opened.pop_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()


class _OperatorsChoices(Struct, frozen=True):
    """What an operator chose for this process, and what holds for its work elsewhere."""

    secrets: secret_rules.SecretChoice
    own_services: str

    @classmethod
    def here(cls) -> "_OperatorsChoices":
        """Those of this process."""
        own = os.environ.get(services.VARIABLE, "")
        return cls(secret_rules.choice(), os.path.abspath(own) if own else "")

    def apply(self) -> None:
        """Make them hold in this process."""
        secret_rules.choose(self.secrets)
        os.environ[services.VARIABLE] = self.own_services
