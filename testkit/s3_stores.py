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
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

ACCESS_KEY, SECRET_KEY = "tester00", "testing0testing0"
"""MinIO wants eight characters at least."""
SYSTEM_PATH = "/usr/sbin:/sbin"
READY_S = 60.0
_POLL_S = 0.1
_CEPH_CONF = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon_port}/0]
mon initial members = a
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 4294967296
mon allow pool size one = true
mon data avail crit = 1
ms bind msgr1 = false
public addr = 127.0.0.1
run dir = {folder}
admin socket =
log file = {folder}/$name.log
pid file =
mon data = {folder}/mon
osd data = {folder}/osd
keyring = {folder}/keyring
rgw data = {folder}/rgw
rgw dns name = localhost
rgw thread pool size = 32
rgw frontends = beast endpoint=127.0.0.1:{rgw_port}
"""


_CEPH_ENTITIES = {"mon.": ("mon",), "client.admin": ("mon", "osd", "mgr"), "osd.0": ("mon", "osd")}
"""Who has a key of Ceph's own, and for which daemons; RGW cannot do without."""


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
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.port}"


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
        yield S3Store(port, domain="", has_request_ids=False)


@contextmanager
def start_rgw(folder: Path) -> Iterator[S3Store]:
    """Ceph with its gateway."""
    programs = {name: _program(name) for name in ("ceph", "ceph-mon", "ceph-osd", "radosgw", "radosgw-admin")}
    mon_port, rgw_port, osd = _unused_port(), _unused_port(), str(uuid.uuid4())
    conf, fsid = folder / "ceph.conf", uuid.uuid4()
    conf.write_text(_CEPH_CONF.format(fsid=fsid, folder=folder, mon_port=mon_port, rgw_port=rgw_port))
    environment = {**os.environ, "CEPH_CONF": str(conf)}
    for name in ("mon", "osd", "rgw"):
        (folder / name).mkdir()

    def run(name: str, *words: str) -> None:
        """One command to its end."""
        program = programs.get(name) or _program(name)
        subprocess.run((program, *words), env=environment, check=True, capture_output=True, timeout=READY_S)

    with ExitStack() as stack:
        keyring, monitors = str(folder / "keyring"), str(folder / "monmap")
        run("ceph-authtool", "--create-keyring", keyring)
        for entity, capabilities in _CEPH_ENTITIES.items():
            words = [word for daemon in capabilities for word in ("--cap", daemon, "allow *")]
            run("ceph-authtool", keyring, "--gen-key", "-n", entity, *words)
        run("monmaptool", "--create", "--fsid", str(fsid), "--addv", "a", f"[v2:127.0.0.1:{mon_port}]", monitors)
        run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors, "--keyring", keyring)
        _start(stack, (programs["ceph-mon"], "-i", "a", "-f"), folder / "mon.log", environment)
        run("ceph", "osd", "new", osd)
        run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        _start(stack, (programs["ceph-osd"], "-i", "0", "-f"), folder / "osd.log", environment)
        keys = ("--access-key", ACCESS_KEY, "--secret", SECRET_KEY)
        run("radosgw-admin", "user", "create", "--uid", "tester", "--display-name", "tester", *keys)
        _start(stack, (programs["radosgw"], "-f", "-n", "client.admin"), folder / "rgw.log", environment)
        _wait_for_answer(rgw_port, folder / "rgw.log")
        yield S3Store(rgw_port, payloads=("unsigned", "signed", "chunked"))


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


def _wait_for_answer(port: int, log: Path) -> None:
    """Wait until HTTP is answered, whatever the answer. Raises: TimeoutError with the end of the log."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=1).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(_POLL_S)
        else:
            return
    raise TimeoutError(f"{log}: {log.read_text(errors='replace')[-2000:]}")
