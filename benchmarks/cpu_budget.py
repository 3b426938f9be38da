"""What an agent uses of a core under a flood of requests, without a CPU budget and with one.

    python -m benchmarks.cpu_budget [--percent 5] [--seconds 30] [--connections 64] [--close]

`wrk` asks `nginx` over a veth pair between two namespaces as fast as it can; the agent captures at the server's end,
to a directory. Shown are, for each second, the CPU time of the agent's process in user space and system calls (all
threads, from the scheduler's nanoseconds) and its resident memory, with what it says; and at the end what it captured.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

from testkit.live_hosts import Capturing, NoNamespacesError, Pair, pair

NGINX = """
daemon off; pid {folder}/nginx.pid; worker_processes 1; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{ listen {address}:8080; location / {{ return 200 "ok"; }} }} }}
"""
HEADERS = ("X-Auth-Token: AUTH_tk0123456789abcdef", "X-Trans-Id: tx0123456789abcdef", f"Cookie: {'c' * 400}")


def main() -> int:
    """Run the comparison. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--percent", type=float, default=5)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--close", action="store_true", help="A connection for each request.")
    asked = parser.parse_args()
    try:
        with ExitStack() as stack:
            hosts = stack.enter_context(pair())
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cpu-budget-")))
            _start_nginx(stack, hosts, folder)
            for options in ((), ("--cpu-budget", str(asked.percent))):
                print(" ".join(options) or "no budget", flush=True)
                _measure(hosts, folder / f"captures-{len(options)}", asked, options)
    except NoNamespacesError as error:
        sys.exit(f"namespaces are needed: {error}")
    return 0


def _start_nginx(stack: ExitStack, hosts: Pair, folder: Path) -> None:
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, address=hosts.b.address))
    folder.chmod(0o755)
    process = subprocess.Popen([*hosts.b.enter, "nginx", "-c", str(config)])
    stack.callback(process.wait)
    stack.callback(process.terminate)
    time.sleep(1)


def _measure(hosts: Pair, folder: Path, asked: argparse.Namespace, options: tuple[str, ...]) -> None:
    url = f"http://{hosts.b.address}:8080/object"
    chosen = (*HEADERS, *(["Connection: close"] if asked.close else []))
    headers = [word for header in chosen for word in ("-H", header)]
    wrk = [*hosts.a.enter, "wrk", "-t1", f"-c{asked.connections}", f"-d{asked.seconds}s", *headers, url]
    said: list[tuple[float, str]] = []
    with hosts.b.capture(folder, *options) as agent:
        began = time.monotonic()
        reader = Thread(target=_read_lines, args=(agent, said, began), daemon=True)
        reader.start()
        load = subprocess.Popen(wrk, stdout=subprocess.PIPE, text=True)
        used = _cpu_s(agent.process.pid)
        shown = 0
        for second in range(1, asked.seconds + 1):
            time.sleep(max(0.0, began + second - time.monotonic()))
            now = _cpu_s(agent.process.pid)
            lines = "; ".join(line for _, line in said[shown:])
            shown = len(said)
            print(f"{second:>4} s {100 * (now - used):>6.1f} %  {_resident_mib(agent.process.pid):>5} MiB  {lines}")
            used = now
        output = load.communicate()[0]
        agent.process.terminate()
        reader.join(30)
    rate = re.search(r"Requests/sec: +([\d.]+)", output)
    print(f"     {rate[1] if rate else '?'} requests/s; {said[-1][1] if said else ''}", flush=True)


def _read_lines(agent: Capturing, said: list[tuple[float, str]], began: float) -> None:
    while line := agent.line():
        said.append((time.monotonic() - began, line.strip().removeprefix("tracer: ")))


def _cpu_s(pid: int) -> float:
    """CPU time of all threads so far. Source: Documentation/scheduler/sched-stats.rst."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _resident_mib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 >> 20


if __name__ == "__main__":
    sys.exit(main())
