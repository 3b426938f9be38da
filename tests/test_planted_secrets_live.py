"""Secrets planted in packets that an agent captures: none is in what it writes."""

import base64
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from testkit.live_hosts import Pair, pair
from tests.helpers.planted_secrets import (
    Place,
    ceph_places,
    found_in,
    http2_places,
    kafka_places,
    memcached_places,
    mongodb_documents,
    mongodb_places,
    mysql_places,
    places,
    postgresql_places,
    redis_places,
    tls_places,
    websocket_places,
    zookeeper_places,
)
from tests.helpers.system_tools import or_skip

pytestmark = pytest.mark.live
PLANTED = places()
ANSWER = """
import socket, sys
server = socket.create_server((sys.argv[1], 8080))
print("ready", flush=True)
while True:
    one = server.accept()[0]
    one.recv(65536)
    one.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
    one.close()
"""
ASK = """
import base64, socket, sys
for line in sys.stdin:
    one = socket.create_connection((sys.argv[1], 8080))
    one.sendall(base64.b64decode(line))
    one.recv(65536)
    one.close()
"""


def test_an_agent_writes_none(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with or_skip():
            hosts = stack.enter_context(pair())
        in_requests = [place for place in PLANTED if not place.name.startswith("answer")]
        for payload in ("heads", "2000"):
            _ask_all(hosts, in_requests, tmp_path / payload, payload)
            files = list((tmp_path / payload / "a").iterdir())
            assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
            content = b"".join(path.read_bytes() for path in files)
            assert content.count(b"X-Trans-Id: tx") == len(in_requests)
            assert found_in(content, PLANTED) == []
            for planted, preface in ((http2_places(), b"PRI * HTTP/2.0"), (ceph_places(), b"ceph v2\n")):
                folder = tmp_path / f"{planted[0].secret[:2]}-{payload}"
                _ask_all(hosts, planted, folder, payload)
                content = b"".join(path.read_bytes() for path in (folder / "a").iterdir())
                assert content.count(preface) == len(planted)
                assert found_in(content, planted) == []
        sockets = [place for place in websocket_places() if place.response == b""]
        _ask_all(hosts, sockets, tmp_path / "websocket", "heads")
        content = b"".join(path.read_bytes() for path in (tmp_path / "websocket" / "a").iterdir())
        assert content.count(b"\x89\x80\0\0\0\0") == len([place for place in sockets if "two" in place.name])
        assert found_in(content, sockets) == []
        for name, planted in (("postgresql", postgresql_places()), ("mysql", mysql_places())):
            _ask_all(hosts, planted, tmp_path / name, "heads")
            content = b"".join(path.read_bytes() for path in (tmp_path / name / "a").iterdir())
            statements = [place for place in planted if b"SELECT a FROM t" in place.request]
            assert content.count(b"SELECT a FROM t WHERE b = ") == len(statements)
            assert found_in(content, planted) == []
        for number, planted in enumerate((mongodb_places(), mongodb_documents())):
            _ask_all(hosts, planted, tmp_path / f"mongodb-{number}", "heads")
            content = b"".join(path.read_bytes() for path in (tmp_path / f"mongodb-{number}" / "a").iterdir())
            assert content.count(b"$db\0") > len(planted) // 2
            assert found_in(content, planted) == []
        _ask_all(hosts, mongodb_places(), tmp_path / "mongodb-whole", "2000")
        content = b"".join(path.read_bytes() for path in (tmp_path / "mongodb-whole" / "a").iterdir())
        assert found_in(content, mongodb_places()) == []
        for name, planted in (("redis", redis_places()), ("memcached", memcached_places())):
            _ask_all(hosts, planted, tmp_path / name, "heads")
            content = b"".join(path.read_bytes() for path in (tmp_path / name / "a").iterdir())
            assert content.count(b"PING" if name == "redis" else b"set ") >= 2
            assert found_in(content, planted) == []
        for name, planted, kept in (("kafka", kafka_places(), b"shop"), ("zookeeper", zookeeper_places(), b"/app")):
            _ask_all(hosts, planted, tmp_path / name, "heads")
            content = b"".join(path.read_bytes() for path in (tmp_path / name / "a").iterdir())
            assert content.count(kept) == sum(place.request.count(kept) for place in planted)
            assert found_in(content, planted) == []
        _ask_all(hosts, tls_places(), tmp_path / "tls", "heads")
        content = b"".join(path.read_bytes() for path in (tmp_path / "tls" / "a").iterdir())
        assert content.count(b"kept.example") == len(tls_places())
        assert found_in(content, tls_places()) == []


def _ask_all(hosts: Pair, planted: list[Place], folder: Path, payload: str) -> None:
    lines = "\n".join(base64.b64encode(place.request).decode() for place in planted)
    with (
        hosts.b.running(sys.executable, "-c", ANSWER, hosts.b.address, ready="ready"),
        hosts.a.capture(folder, "--payload", payload) as agent,
    ):
        argv = [*hosts.a.enter, sys.executable, "-c", ASK, hosts.b.address]
        subprocess.run(argv, input=lines, text=True, check=True, timeout=60)
        agent.stop()
