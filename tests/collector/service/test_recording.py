"""`tracer record` with agents and a cluster that are small scripts: what starts, what stops, what is printed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from collector.commands import record as record_command
from collector.decode.sources import samples_of
from collector.service import recording
from collector.service.recording import (
    Cluster,
    ClusterHost,
    Recording,
    capture_hosts,
    find_cluster,
    find_program,
    record,
    run_command,
)
from collector.trace.model import CommandInfo
from tracer.agent import SkewedClock
from tracer.errors import InputError, ServiceError

PROXY = ClusterHost("proxy", ("eth0", "lo"), ())
CLIENT = ClusterHost("client", ("eth0",), ())
CLUSTER = Cluster("client", {"ST_USER": "test:tester"}, (CLIENT, PROXY))

GOOD_SAMPLER = """
import sys
open(sys.argv[2], "w").write("host,host_ns,metric,value\\nproxy,5,cpu_percent,12.5\\n")
print("tracer: sampling into", sys.argv[2], *sys.argv[3:], file=sys.stderr, flush=True)
sys.stdin.read()
"""
GOOD_AGENT = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: (os.write(2, b"tracer: 5 packets\\n"), os._exit(0)))
os.write(2, f"tracer: capturing on eth0 {' '.join(sys.argv[1:])}\\ntracer: interface lo is down\\n".encode())
sys.stdin.read()
print("tracer: stopped with its parent", file=sys.stderr)
"""
"""Its lines are single writes: a signal between two of them, or within a print, would change what it says."""

FailingScript = Callable[[str], None]


@pytest.fixture
def tracer_is(monkeypatch: pytest.MonkeyPatch) -> FailingScript:
    """Replace the `tracer` command by a Python script."""
    return lambda script: monkeypatch.setattr(recording, "TRACER", (sys.executable, "-c", script))


def shell(text: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", text)


def test_the_cluster_is_what_its_status_says(tracer_is: FailingScript) -> None:
    status = {
        "client_host": "client",
        "environment": {"ST_USER": "test:tester"},
        "hosts": [{"host": "proxy", "interfaces": ["eth0", "lo"], "enter": ["nsenter", "-t", "1", "--"], "more": 1}],
        "running": True,
        "sampler": ["sample"],
    }
    tracer_is(f"print({json.dumps(status)!r})")
    found = find_cluster()
    assert found == Cluster(
        "client",
        {"ST_USER": "test:tester"},
        (ClusterHost("proxy", ("eth0", "lo"), ("nsenter", "-t", "1", "--")),),
        ("sample",),
    )


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import sys; sys.exit('tracer: no cluster is up; run: tracer cluster up')", "no cluster is up; run"),
        ("import sys; sys.exit(2)", "no cluster is running; run: tracer cluster up"),
    ],
)
def test_no_cluster_is_one_line(tracer_is: FailingScript, script: str, message: str) -> None:
    tracer_is(script)
    with pytest.raises(ServiceError) as raised:
        find_cluster()
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_all_hosts_are_captured_while_the_command_runs(tracer_is: FailingScript, tmp_path: Path) -> None:
    tracer_is(GOOD_AGENT)
    out = tmp_path / "out"
    done = record(CLUSTER, [], shell(f'echo "$ST_USER" > {out}; exit 7'), tmp_path)
    assert out.read_text() == "test:tester\n"
    assert done.command.exit_status == 7
    assert done.command.host == "client"
    assert done.command.started_host_ns < done.command.ended_host_ns
    assert done.summaries == ("client: 5 packets", "proxy: 5 packets")
    assert done.notices == ("client, proxy: interface lo is down",)
    assert done.failures == ()


def test_what_the_hosts_use_is_noted_beside_the_captures(tracer_is: FailingScript, tmp_path: Path) -> None:
    tracer_is(GOOD_AGENT)
    script = GOOD_SAMPLER.replace("sys.stdin.read()", "import signal; signal.sigwait([signal.SIGTERM])")
    block = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])"
    cluster = replace(CLUSTER, sampler=(sys.executable, "-c", block + script))
    assert record(cluster, [], shell("true"), tmp_path).notices[0] == "client, proxy: interface lo is down"
    assert samples_of([str(tmp_path)]).to_pylist() == [
        {"host": "proxy", "host_ns": 5, "metric": "cpu_percent", "value": 12.5}
    ]


@pytest.mark.parametrize(
    "script", ["sys.exit('tracer: no such cluster')", "sys.stderr.write('tracer: no such cluster')"]
)
def test_a_sampler_that_fails_is_reported_and_the_recording_goes_on(
    tracer_is: FailingScript, tmp_path: Path, script: str
) -> None:
    tracer_is(GOOD_AGENT)
    cluster = replace(CLUSTER, sampler=(sys.executable, "-c", f"import sys; {script}"))
    done = record(cluster, [], shell("exit 3"), tmp_path)
    assert done.notices[0] == "what the hosts used is not known: no such cluster"
    assert done.command.exit_status == 3
    assert samples_of([str(tmp_path)]) is None


def test_each_agent_gets_its_interfaces_and_host(tracer_is: FailingScript, tmp_path: Path) -> None:
    tracer_is(GOOD_AGENT)
    with capture_hosts([PROXY], tmp_path) as (agent,):
        assert agent.lines[0].endswith(f"capture -i eth0 -i lo --host proxy --write {tmp_path} --until-eof")


def test_an_agent_pretends_the_clock_error_of_its_host(tracer_is: FailingScript, tmp_path: Path) -> None:
    clock = {"offset_ns": -5, "drift_ppb": 7, "since_ns": 9}
    hosts = [{"host": "proxy", "interfaces": ["eth0"], "enter": [], "clock": clock}]
    tracer_is(f"print({json.dumps({'client_host': 'proxy', 'environment': {}, 'hosts': hosts})!r})")
    found = find_cluster().host("proxy")
    tracer_is(GOOD_AGENT)
    with capture_hosts([found], tmp_path) as (agent,):
        assert agent.lines[0].endswith("--until-eof --clock-error offset_ns=-5,drift_ppb=7,since_ns=9")


def test_the_commands_times_are_of_the_clients_clock(tracer_is: FailingScript, tmp_path: Path) -> None:
    tracer_is(GOOD_AGENT)
    hour_ns = 3_600_000_000_000
    client = replace(CLUSTER.hosts[0], clock_error=SkewedClock(offset_ns=hour_ns))
    begin_ns = time.time_ns()
    command = record(replace(CLUSTER, hosts=(client,)), [], shell("true"), tmp_path).command
    assert begin_ns + hour_ns <= command.started_host_ns <= command.ended_host_ns <= time.time_ns() + hour_ns


@pytest.mark.parametrize(("error", "stamp"), [((7, 0, 100), 207), ((0, -100_000_000, 100), 190), ((7, 9, 201), 200)])
def test_a_wrong_clock_is_wrong_from_its_moment_on(error: tuple[int, int, int], stamp: int) -> None:
    assert SkewedClock(*error).stamp(200) == stamp


def test_hosts_can_be_chosen(tracer_is: FailingScript, tmp_path: Path) -> None:
    tracer_is(GOOD_AGENT)
    assert record(CLUSTER, ["proxy", "proxy"], shell("true"), tmp_path).summaries == ("proxy: 5 packets",)
    with pytest.raises(InputError, match="no host nope in the cluster; there are: client, proxy"):
        record(CLUSTER, ["nope"], shell("true"), tmp_path)


def test_an_agent_that_does_not_start_stops_all_and_its_words_are_reported(
    tmp_path: Path, tracer_is: FailingScript
) -> None:
    tracer_is(f"import sys\nif 'proxy' in sys.argv: sys.exit('tracer: no interface eth0; there are: lo')\n{GOOD_AGENT}")
    ran = tmp_path / "ran"
    with pytest.raises(ServiceError) as raised:
        record(CLUSTER, [], shell(f"touch {ran}"), tmp_path)
    assert str(raised.value) == "the agent on proxy did not start: no interface eth0; there are: lo"
    assert not ran.exists()


def test_an_agent_that_ends_early_is_reported_and_the_command_goes_on(tracer_is: FailingScript, tmp_path: Path) -> None:
    tracer_is(
        "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"  # it ends, asked or not
        "print('tracer: capturing on eth0', file=sys.stderr, flush=True); sys.exit('tracer: no space left')"
    )
    done = record(CLUSTER, ["proxy"], shell("true"), tmp_path)
    assert done.failures == ("proxy: no space left",)
    assert done.command.exit_status == 0


def test_addresses_are_of_hosts_that_are_captured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = []

    def record_to(*words: object, quiet: bool) -> Recording:
        given.append(words[-1])
        return Recording(CommandInfo(("true",), "client", 1, 2, 0), (), (), ())

    monkeypatch.setattr(record_command, "find_cluster", lambda: CLUSTER)
    monkeypatch.setattr(record_command, "_record_to", record_to)
    monkeypatch.setattr(record_command, "build_report", lambda _: None)
    monkeypatch.setattr(record_command, "show", lambda _: None)

    def run(*words: str) -> None:
        words = ("-o", str(tmp_path / "trace"), *words, "true")
        CliRunner().invoke(record_command.command, words, catch_exceptions=False)

    run("--address", "proxy=10.0.0.2", "--address", "proxy=10.0.1.2")
    assert given[0].addresses == {"proxy": {"10.0.0.2", "10.0.1.2"}}
    with pytest.raises(InputError, match="host web is not captured"):
        run("--address", "web=10.0.0.3")
    with pytest.raises(InputError, match="host proxy is not captured"):
        run("--on", "client", "--address", "proxy=10.0.0.2")
    assert len(given) == 1


def test_an_unknown_command_is_reported_before_anything_starts() -> None:
    with pytest.raises(InputError, match="command not found: nonesuch-command"):
        find_program(["nonesuch-command", "--option"])


def test_programs_beside_the_interpreter_are_found() -> None:
    environment = find_program([Path(sys.executable).name])
    assert str(Path(sys.executable).parent) in environment["PATH"].split(os.pathsep)


def test_interrupt_is_for_the_command_and_recording_goes_on() -> None:
    done = run_command(CLIENT, shell("kill -INT $PPID; exit 3"), dict(os.environ))
    assert done.exit_status == 3


def test_terminate_is_passed_on_to_the_command() -> None:
    done = run_command(CLIENT, shell("kill -TERM $PPID; exec sleep 60"), dict(os.environ))
    assert done.exit_status == 128 + signal.SIGTERM


def test_an_agent_ends_when_its_parent_is_gone() -> None:
    agent = subprocess.Popen(
        [sys.executable, "-c", GOOD_AGENT], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    _, said = agent.communicate()
    assert said.splitlines()[-1] == "tracer: stopped with its parent"
