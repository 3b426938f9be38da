"""Hosts with an sshd each on this machine: network namespaces on one bridge, reached by an own ssh configuration.

`laptop` (10.88.0.1) has no sshd; `web1`, `api1`, `db1` (10.88.0.11 …) have one on port 22, with host keys and an
authorised key made here. Needs root, sshd and iproute2. Everything goes away with the processes that are held.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

LAPTOP_ADDRESS = "10.88.0.1"
NAMES = ("web1", "api1", "db1")
_HOLD = "ip link set lo up; echo ready; exec sleep infinity"
_READY_SECONDS = 20

SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.send_header("Set-Cookie", "SECRET-COOKIE=1")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Handler)
print("ready", flush=True)
server.serve_forever()
"""
"""An HTTP server that says `ready`."""

CLIENT = """
import http.client, sys, time
connection = http.client.HTTPConnection(sys.argv[1], 8080)
for number in range(int(sys.argv[2])):
    connection.request("GET", f"/{number}", headers={"X-Auth-Token": "SECRET-TOKEN"})
    connection.getresponse().read()
    time.sleep(float(sys.argv[3]))
connection.close()
"""
"""HOST COUNT PAUSE: so many requests, with a secret, on one connection."""


@dataclass(frozen=True)
class SshHost:
    """One namespace: `enter` runs a command there."""

    name: str
    address: str
    enter: tuple[str, ...]
    holder: int
    """The process whose namespace it is."""


@dataclass(frozen=True)
class SshHosts:
    """All of them; `config` is for `ssh -F`, `folder` for what is made on the way."""

    laptop: SshHost
    hosts: Mapping[str, SshHost]
    config: Path
    folder: Path


def missing_parts() -> str:
    """Why there can be none here; "" if nothing is missing."""
    if os.geteuid() != 0:
        return "network namespaces with an sshd need root"
    needed = ("ssh", "sshd", "ssh-keygen", "ip", "nsenter", "unshare")
    missing = [name for name in needed if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if missing:
        return f"{missing[0]} is not installed"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return tried.stderr.strip()


@contextmanager
def ssh_hosts(folder: Path, force: Mapping[str, str] | None = None) -> Iterator[SshHosts]:
    """The hosts, within the context.

    Arguments: `force`, by host a command that its sshd runs instead of the client's, which is in $SSH_ORIGINAL_COMMAND.
    """
    key = folder / "key"
    _make_key(key)
    with ExitStack() as stack:
        switch = stack.enter_context(_namespace("switch", ""))
        _run(switch, "ip", "link", "add", "br0", "type", "bridge")
        _run(switch, "ip", "link", "set", "br0", "up")
        laptop = stack.enter_context(_namespace("laptop", LAPTOP_ADDRESS))
        hosts = {
            name: stack.enter_context(_namespace(name, f"10.88.0.{11 + place}")) for place, name in enumerate(NAMES)
        }
        for place, host in enumerate((laptop, *hosts.values())):
            _join(switch, host, place)
        for host in hosts.values():
            stack.enter_context(_sshd(host, folder, key, (force or {}).get(host.name, "")))
        config = folder / "ssh_config"
        config.write_text(_client_config(hosts.values(), folder, key))
        yield SshHosts(laptop, hosts, config, folder)


@contextmanager
def process(host: SshHost, argv: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A program on a host; it has said `ready` when the context begins."""
    started = subprocess.Popen([*host.enter, *argv], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    try:
        assert started.stdout.readline() == "ready\n"
        yield started
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


@contextmanager
def _namespace(name: str, address: str) -> Iterator[SshHost]:
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", _HOLD], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "ready\n"
        yield SshHost(name, address, ("nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"), holder.pid)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def _join(switch: SshHost, host: SshHost, place: int) -> None:
    """A cable from the host's eth0 to the switch."""
    port = f"port{place}"
    names = ("type", "veth", "peer", "name", "eth0", "netns", str(host.holder))
    _run(switch, "ip", "link", "add", port, *names)
    _run(switch, "ip", "link", "set", port, "master", "br0", "up")
    _run(host, "ip", "address", "add", f"{host.address}/24", "dev", "eth0")
    _run(host, "ip", "link", "set", "eth0", "up")


def _run(host: SshHost, *argv: str) -> None:
    subprocess.run([*host.enter, *argv], check=True, capture_output=True, timeout=30)


def _make_key(path: Path) -> None:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(argv, check=True, capture_output=True, timeout=30)


@contextmanager
def _sshd(host: SshHost, folder: Path, key: Path, force: str) -> Iterator[None]:
    host_key = folder / f"{host.name}-key"
    _make_key(host_key)
    Path("/run/sshd").mkdir(exist_ok=True)  # where it puts itself before a login
    lines = [
        "Port 22",
        f"ListenAddress {host.address}",
        f"HostKey {host_key}",
        f"AuthorizedKeysFile {key}.pub",
        "PermitRootLogin yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "StrictModes no",
        "UsePAM no",
        "PidFile none",
        *([f"ForceCommand {force}"] if force else []),
    ]
    config = folder / f"{host.name}-sshd"
    config.write_text("\n".join(lines) + "\n")
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or "sshd"
    log = folder / f"{host.name}-sshd.log"
    daemon = subprocess.Popen([*host.enter, program, "-D", "-E", str(log), "-f", str(config)])
    try:
        due = time.monotonic() + _READY_SECONDS
        while "listening on" not in (log.read_text() if log.exists() else ""):
            assert time.monotonic() < due and daemon.poll() is None, "sshd does not start"
            time.sleep(0.02)
        yield
    finally:
        daemon.terminate()
        daemon.wait()


def _client_config(hosts: Iterable[SshHost], folder: Path, key: Path) -> str:
    hosts = list(hosts)
    known = folder / "known_hosts"
    known.write_text("".join(f"{host.address} {(folder / f'{host.name}-key.pub').read_text()}" for host in hosts))
    blocks = [f"Host {host.name}\n  HostName {host.address}\n" for host in hosts]
    common = f"Host *\n  User root\n  IdentityFile {key}\n  IdentitiesOnly yes\n  UserKnownHostsFile {known}\n"
    return "".join(blocks) + common + "  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n"
