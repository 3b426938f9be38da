"""The balancer before several S3 gateways or proxies: HAProxy, with a configuration that follows from the topology.

    client ─ HTTP ─▶ balancer: who has the fewest requests under way ─▶ gateway1, gateway2, …

The process binds its port, writes the configuration beside its log, and becomes HAProxy, which inherits the socket. So
a client that comes early waits in the socket's queue, and faults (`stop`, `kill`, `backlog`) find the process where
they find that of any server. Each request is given to a server by itself, also those of one kept connection. Servers
are not probed, since no user's request would have caused that traffic: one that takes no connection is passed over. A
server with several workers is one for HAProxy: the kernel gives each connection to one of them.

Source: HAProxy configuration manual (2.6).
"""

import os
import shutil
import socket
import subprocess
from pathlib import Path

from storage_cluster.servers.http.front import ACCEPT_BACKLOG
from storage_cluster.services import BALANCER_PROGRAM, kind_of
from storage_cluster.topology import Service, Topology

_SYSTEM_PATH = "/usr/sbin:/sbin"
_CONNECT_S = 1
_IDLE_S = 300
_BUFFER_BYTES = 131_072
"""Bodies pass in pieces of this size: with HAProxy's 16 KiB its processor time for each MB is much higher."""
_HEADERS_MAX = 1024
"""HAProxy's 101 are fewer than Swift's 90 of metadata and those that go with them."""
_CONFIGURATION = """global
  nbthread 1
  maxconn 4096
  tune.bufsize {buffer}
  tune.http.maxhdr {headers}
  log fd@{log} format raw local0 info
defaults
  mode http
  log global
  option httplog
  retries 3
  option redispatch 1
  timeout connect {connect}s
  timeout client {idle}s
  timeout server {idle}s
frontend {before}
  bind fd@{bound}
  default_backend servers
backend servers
  balance leastconn
{servers}
"""


def find_program(program: str = BALANCER_PROGRAM) -> str | None:
    """The path of a program; None if it is not installed."""
    return shutil.which(program) or shutil.which(program, path=_SYSTEM_PATH)


def configuration(service: Service, topology: Topology, bound: int, log: int) -> str:
    """The configuration of a balancer; `bound` and `log` are the descriptors of its socket and log."""
    servers = "\n".join(f"  server {each.host} {each.address}:{each.port}" for each in topology.behind(service))
    return _CONFIGURATION.format(
        before=kind_of(service.name).before,
        bound=bound,
        log=log,
        servers=servers,
        connect=_CONNECT_S,
        idle=_IDLE_S,
        buffer=_BUFFER_BYTES,
        headers=_HEADERS_MAX,
    )


def become_balancer(service: Service, topology: Topology, bound: socket.socket, logs_dir: Path) -> None:
    """Become HAProxy; prints `ready` before. Never returns. Raises: SystemExit with HAProxy's words if it refuses."""
    program = find_program()
    if program is None:
        raise SystemExit(f"{BALANCER_PROGRAM} is not installed")
    log = os.open(logs_dir / f"{service.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    bound.listen(ACCEPT_BACKLOG)
    for descriptor in (bound.fileno(), log):
        os.set_inheritable(descriptor, True)
    file = logs_dir / f"{service.name}.cfg"
    file.write_text(configuration(service, topology, bound.fileno(), log), "utf-8")
    check = subprocess.run(
        (program, "-c", "-f", str(file)), capture_output=True, text=True, check=False, close_fds=False
    )
    if check.returncode:
        raise SystemExit(check.stderr or check.stdout)
    print("ready", flush=True)
    os.execv(program, (program, "-db", "-f", str(file)))
