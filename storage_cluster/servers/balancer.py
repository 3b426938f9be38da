"""The balancer before several S3 gateways: HAProxy, with a configuration that follows from the topology.

    client ─ HTTP ─▶ balancer: the gateway with the fewest requests under way ─▶ gateway1, gateway2, …

The process binds its port, writes the configuration beside its log, and becomes HAProxy, which inherits the socket. So
a client that comes early waits in the socket's queue, and faults (`stop`, `kill`, `backlog`) find the process where
they find that of any server. Each request is given to a gateway by itself, also those of one kept connection. Gateways
are not probed, since no user's request would have caused that traffic: one that takes no connection is passed over.

Source: HAProxy configuration manual (2.6).
"""

import os
import shutil
import socket
import subprocess
from pathlib import Path

from storage_cluster.servers.http.front import ACCEPT_BACKLOG
from storage_cluster.topology import Service, Topology

PROGRAM = "haproxy"
PACKAGE = "haproxy"
_SYSTEM_PATH = "/usr/sbin:/sbin"
_CONNECT_S = 1
_IDLE_S = 300
_BUFFER_BYTES = 131_072
"""Bodies pass in pieces of this size: with HAProxy's 16 KiB its processor time for each MB is much higher."""
_CONFIGURATION = """global
  nbthread 1
  maxconn 4096
  tune.bufsize {buffer}
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
frontend s3
  bind fd@{bound}
  default_backend gateways
backend gateways
  balance leastconn
{servers}
"""


def find_program() -> str | None:
    """The path of HAProxy; None if it is not installed."""
    return shutil.which(PROGRAM) or shutil.which(PROGRAM, path=_SYSTEM_PATH)


def configuration(topology: Topology, bound: int, log: int) -> str:
    """The configuration; arguments: the descriptors of the socket and of the log."""
    servers = "\n".join(f"  server {each.host} {each.address}:{each.port}" for each in topology.gateways)
    return _CONFIGURATION.format(
        bound=bound, log=log, servers=servers, connect=_CONNECT_S, idle=_IDLE_S, buffer=_BUFFER_BYTES
    )


def become_balancer(service: Service, topology: Topology, bound: socket.socket, logs_dir: Path) -> None:
    """Become HAProxy; prints `ready` before. Never returns. Raises: SystemExit with HAProxy's words if it refuses."""
    program = find_program()
    if program is None:
        raise SystemExit(f"{PROGRAM} is not installed")
    log = os.open(logs_dir / f"{service.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    bound.listen(ACCEPT_BACKLOG)
    for descriptor in (bound.fileno(), log):
        os.set_inheritable(descriptor, True)
    file = logs_dir / f"{service.name}.cfg"
    file.write_text(configuration(topology, bound.fileno(), log), "utf-8")
    check = subprocess.run(
        (program, "-c", "-f", str(file)), capture_output=True, text=True, check=False, close_fds=False
    )
    if check.returncode:
        raise SystemExit(check.stderr or check.stdout)
    print("ready", flush=True)
    os.execv(program, (program, "-db", "-f", str(file)))
