"""`python -m storage_cluster.servers SERVICE --host HOST --state-dir DIR`: run one server until SIGTERM.

SERVICE is a name of the table of services, or of the topology's commands. Prints `ready` once it listens; what goes
wrong goes to stderr.
"""

import argparse
import asyncio
import dataclasses
import gc
import signal
from pathlib import Path

import uvloop

from storage_cluster import services
from storage_cluster import topology as topologies
from storage_cluster.servers import balancer, foreign, open_files, process
from storage_cluster.services import Process
from storage_cluster.topology import Service, Topology

_GC_THRESHOLD = 20_000
"""Objects made and not freed between collections. Requests leave hardly a cycle behind; 700 is several a request."""


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    open_files.allow_all()
    parser = argparse.ArgumentParser()
    parser.add_argument("service")
    parser.add_argument("--host", required=True)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--worker", type=int, default=0)
    options = parser.parse_args()
    topology = topologies.load(options.state_dir / "topology.toml")
    service = dataclasses.replace(topology.service(options.service, options.host), worker=options.worker)
    logs_dir = options.state_dir / "logs" / options.host
    kind = services.kind_of(service.name)
    if kind.process is Process.BALANCER:
        balancer.become_balancer(service, topology, process.bind(service), logs_dir)
    if kind.process is Process.COMMAND:
        foreign.become_command(service, logs_dir)
    uvloop.run(serve(service, topology, options.state_dir))


async def serve(service: Service, topology: Topology, state_dir: Path) -> None:
    """Run one server of ours until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    data_dir = state_dir / "data" / service.host
    logs_dir = state_dir / "logs" / service.host
    if services.kind_of(service.name).process is Process.DAEMONS:
        from storage_cluster.daemons import host as daemons  # noqa: PLC0415  servers start without it

        working = daemons.running(topology, service.host, data_dir, logs_dir)
    else:
        log_file = logs_dir / f"{service.process_name}.jsonl"
        working = process.running(service, topology, process.bind(service), data_dir, log_file)
    async with working:
        gc.freeze()  # modules and rings stay: no collection need look at them again
        gc.set_threshold(_GC_THRESHOLD)
        print("ready", flush=True)
        await stop.wait()


if __name__ == "__main__":
    main()
