"""Pictures of the collector's page: `PYTHONPATH=. python benchmarks/agents_picture.py FOLDER`.

Agents that are well, one that is behind, one that is silent, a flight recorder; windows in several states, a trigger,
and connections that TLS refused. In light and dark: `agents.png`, `agents-dark.png`.
"""

import asyncio
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import httpx
import uvicorn

from benchmarks.viewer_session import browser
from collector.service.app import create_app
from collector.service.handshakes import Handshakes
from collector.service.settings import CollectorSettings
from collector.service.trigger_rules import parse_condition
from collector.service.trigger_settings import TriggerSettings
from collector.service.windows import Part, PartState, Window, WindowState

SECOND_NS = 10**9
SIZE = {"width": 1440, "height": 900}
INCARNATION = "20261126T091502-0a1b2c"
WELL: dict[str, Any] = {
    "interfaces": ["eth0"],
    "payload": "heads",
    "expression": "",
    "packets_count": 18_204_551,
    "dropped_count": 0,
    "sent_count": 14_320,
    "lost_count": 0,
    "waiting_count": 1,
    "waiting_bytes": 210_000,
    "waiting_ns": 0,
    "spool_limit_bytes": 1 << 30,
    "cpu_ns": 90 * SECOND_NS,
    "memory_bytes": 61 << 20,
    "problem": "",
}
"""A report of an agent with which nothing is wrong."""
CHANGES: dict[str, dict[str, Any]] = {
    "web1": {},
    "web2": {
        "tls_failures_count": 17,
        "tls_failed_ns": 40 * SECOND_NS,
        "tls_failure": "its certificate has expired by this host's clock, 2026-11-26 09:10 UTC; renew it there, or set "
        "this host's clock (timedatectl)",
    },
    "api1": {"waiting_ns": 48 * SECOND_NS, "waiting_count": 96, "waiting_bytes": 610 << 20, "dropped_count": 31_022},
    "db1": {},
    "cache1": {
        "interfaces": ["eth0", "eth1", "lo"],
        "expression": "port 6379 or port 6380",
        "history": {
            "from_ns": 0,
            "to_ns": 5_400 * SECOND_NS,
            "segments_count": 5_300,
            "size_bytes": 1_900 << 20,
            "limit_bytes": 2 << 30,
        },
    },
}
SILENT = "db1"


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Where an app is served."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def report(host: str, url: str, installed: str) -> None:
    """Send two reports of an agent, of which the second has what is wrong with it."""
    now_ns = time.time_ns()
    changes = dict(CHANGES[host])
    if "tls_failed_ns" in changes:
        changes["tls_failed_ns"] = now_ns - changes["tls_failed_ns"]
    ahead = {"clock_ahead_ns": (-1_400_000, 2_100_000)}
    first = WELL | {"version": installed, "started_ns": 0, "sent_ns": now_ns - 5 * SECOND_NS} | ahead
    second = first | {"sent_ns": now_ns, "packets_count": 18_261_904, "cpu_ns": int(90.4 * SECOND_NS)} | changes
    for each in (first, second):
        path = f"{url}/api/sessions/shop/hosts/{host}/incarnations/{INCARNATION}/report"
        httpx.post(path, json=each).raise_for_status()


def windows(app: Any) -> None:
    """Put windows into it, in the states that there are."""
    now_ns, minute_ns = time.time_ns(), 60 * SECOND_NS
    here = Part(is_recorder=False, state=PartState.HERE, detail="118 segments")
    short = Part(
        is_recorder=True,
        state=PartState.PARTIAL,
        detail="its history is too short: it has packets from 08:58:10 UTC",
        missing_ns=minute_ns,
    )
    lost = Part(is_recorder=True, state=PartState.MISSING, detail="silent for 212 s", missing_ns=minute_ns)
    waiting = Part(is_recorder=True)
    found = [
        ("shop-20261126T092500", "a failed request: POST /pay at 09:24:31", WindowState.GATHERING, "failures", waiting),
        ("shop-20261126T091000", "asked for", WindowState.READY, "", short),
        ("shop-20261126T083000", "asked for", WindowState.FAILED, "", lost),
    ]
    for at, (name, reason, state, trigger, part) in enumerate(found):
        app.state.windows._windows[name] = Window(
            window=name,
            session="shop",
            reason=reason,
            trigger=trigger,
            from_ns=now_ns - (20 * at + 10) * minute_ns,
            to_ns=now_ns - 20 * at * minute_ns + (minute_ns if state is WindowState.GATHERING else 0),
            opened_ns=now_ns - 20 * at * minute_ns,
            first_ns=now_ns if state is WindowState.GATHERING else 0,
            state=state,
            problem="no space left on the disk of /var/lib/twintap; free some" if state is WindowState.FAILED else "",
            parts={"web1": here, "cache1": part},
        )


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def main(folder: Path) -> None:
    """Take them."""
    handshakes = Handshakes(lambda: time.time_ns() - 95 * SECOND_NS)
    for reason, address, count in (
        ("expired", "10.0.3.17", 212),
        ("plain_http", "10.0.9.4", 3),
        ("late", "203.0.113.9", 41),
    ):
        for _ in range(count):
            handshakes.count(reason, address)
    with tempfile.TemporaryDirectory(prefix="twintap-") as data:
        settings = CollectorSettings(Path(data), triggers=TriggerSettings((parse_condition("p99>500ms"),)))
        app = create_app(settings, handshakes=handshakes)
        with serving(app) as url, browser() as chromium:
            for host in CHANGES:
                report(host, url, version("twintap"))
            silent = app.state.agents._received["shop", SILENT, INCARNATION]
            app.state.agents._received["shop", SILENT, INCARNATION] = silent.model_copy(
                update={"received_ns": time.time_ns() - 212 * SECOND_NS}
            )
            windows(app)
            for theme, name in (("light", "agents.png"), ("dark", "agents-dark.png")):
                page = chromium.new_page(viewport=SIZE, color_scheme=theme)
                page.goto(url)
                page.wait_for_function("() => document.querySelectorAll('#windows tbody tr').length > 2")
                page.wait_for_function("() => document.querySelector('#windows').textContent.includes('/traces/')")
                page.wait_for_function("() => !document.querySelector('#windows').textContent.includes('…/traces/')")
                page.screenshot(path=str(folder / name), full_page=True)
                page.close()


if __name__ == "__main__":
    main()
