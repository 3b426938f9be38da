"""S3 stores of others, started on loopback for a test or a measurement: MinIO, Ceph's RGW, moto's server.

Each is a context manager in `STORES`, by name; it is given a folder of its own and yields an `S3Store`. Everything that
it started ends with it. A store of our own is one more entry.

Ceph is one monitor and one OSD that keeps all in memory, and a gateway.
"""

import dataclasses
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from testkit.ceph_cluster import GATEWAY, Cluster, start_daemons

ACCESS_KEY, SECRET_KEY = "tester00", "testing0testing0"
"""MinIO wants eight characters at least."""
SYSTEM_PATH = "/usr/sbin:/sbin"
READY_S = 60.0
LOOPBACK = "127.0.0.1"
_POLL_S = 0.1


class MissingProgramError(Exception):
    """A store's program is not installed."""


@dataclasses.dataclass(frozen=True)
class S3Store:
    """A store that runs."""

    port: int
    payloads: tuple[str, ...] = ("unsigned", "signed", "chunked", "trailer")
    """Those options `payload` that it understands."""
    domain: str = "localhost"  # what the names of virtual hosts end in; "": it has none
    has_request_ids: bool = True  # x-amz-request-id
    overwrites_at_once: bool = True  # two clients may write one object at the same time
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://{LOOPBACK}:{self.port}"


@contextmanager
def start_minio(folder: Path) -> Iterator[S3Store]:
    """MinIO on one folder."""
    port = _unused_port()
    more = {"MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY, "MINIO_DOMAIN": "localhost"}
    with ExitStack() as stack:
        argv = (_program("minio"), "server", "--address", f"127.0.0.1:{port}", str(folder / "data"))
        _start(stack, argv, folder / "minio.log", {**os.environ, **more, "HOME": str(folder)})
        _wait_for_answer(port, folder / "minio.log")
        yield S3Store(port)


@contextmanager
def start_moto(folder: Path) -> Iterator[S3Store]:
    """moto's server, which keeps all in memory and verifies no signature."""
    port = _unused_port()
    with ExitStack() as stack:
        _start(stack, (_program("moto_server"), "-H", "127.0.0.1", "-p", str(port)), folder / "moto.log", os.environ)
        _wait_for_answer(port, folder / "moto.log")
        # Of two PUTs of one object at once it closes what it still hashes for the other, and answers 500.
        yield S3Store(port, domain="", has_request_ids=False, overwrites_at_once=False)


@contextmanager
def start_rgw(folder: Path, endpoint: str = "") -> Iterator[S3Store]:
    """Ceph with its gateway. Arguments: `endpoint`, ADDRESS:PORT of the gateway if it is not to be on loopback."""
    programs = {name: _program(name) for name in ("ceph", "ceph-mon", "ceph-osd", "radosgw", "radosgw-admin")}
    gateway = endpoint or f"{LOOPBACK}:{_unused_port()}"
    address, _, port = gateway.partition(":")
    cluster = Cluster(folder, LOOPBACK, (LOOPBACK,), _unused_port(), gateway, gateway_threads=32, pg_num=1)
    environment = {**os.environ, "CEPH_CONF": str(cluster.conf)}

    def run(_: str, name: str, *words: str) -> None:
        """One command to its end."""
        program = programs.get(name) or _program(name)
        subprocess.run((program, *words), env=environment, check=True, capture_output=True, timeout=READY_S)

    with ExitStack() as stack:

        def start(daemon: str, name: str, *words: str) -> None:
            """A daemon that ends with the stack."""
            _start(stack, (programs[name], *words), folder / f"{daemon}.out", environment)

        start_daemons(cluster, run, start, users={"tester": (ACCESS_KEY, SECRET_KEY)})
        _wait_for_answer(int(port), folder / f"{GATEWAY}.out", address)
        yield S3Store(int(port), payloads=("unsigned", "signed", "chunked"))


STORES: dict[str, Callable[[Path], AbstractContextManager[S3Store]]] = {
    "minio": start_minio,
    "moto": start_moto,
    "rgw": start_rgw,
}


def _program(name: str) -> str:
    """The path of a program. Raises: MissingProgramError."""
    found = shutil.which(name) or shutil.which(name, path=SYSTEM_PATH)
    if found is None:
        raise MissingProgramError(f"{name} is not installed")
    return found


def _unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _start(stack: ExitStack, argv: Sequence[str], log: Path, environment: dict[str, str] | os._Environ) -> None:
    """Start a program that ends with the stack."""
    output = stack.enter_context(log.open("ab"))
    process = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    stack.callback(process.wait)
    stack.callback(process.kill)


def _wait_for_answer(port: int, log: Path, address: str = LOOPBACK) -> None:
    """Wait until HTTP is answered, whatever the answer. Raises: TimeoutError with the end of the log."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://{address}:{port}/", timeout=1).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(_POLL_S)
        else:
            return
    raise TimeoutError(f"{log}: {log.read_text(errors='replace')[-2000:]}")
