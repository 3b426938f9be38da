"""Mosquitto, NATS, etcd, PostgreSQL's LISTEN and sshd: connections on which nobody waits for an answer.

Truth: the programs' own logs and how many messages were sent.
"""

import time

from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.systems import postgresql
from benchmarks.real_systems.systems.web_streams import APPS, PYTHON, lines
from benchmarks.real_systems.truth import StreamTruth, Truth

ONLY_STREAMS = ("streams", "messages", "words like None", "products", "findings", "slowest", "packets")
"""Of a system whose other requests no log counts."""


@scenario
class Mosquitto(Scenario):
    """A publisher with one connection, a subscriber that acknowledges (QoS 1)."""

    name = "mqtt"
    words = "Mosquitto; one publisher, one subscriber with QoS 1, 20 messages"
    hosts = addresses(client="10.68.0.10", reader="10.68.0.15", broker="10.68.0.20")
    needs = (("mosquitto", "mosquitto"), ("mosquitto_sub", "mosquitto-clients"))
    count = 20

    def start(self, lab: Lab) -> None:
        settings = f"listener 1883 {lab.address('broker')}\nallow_anonymous true\nlog_type all\nuser root\n"
        lab.start("broker", "mosquitto", "-c", str(lab.file("mosquitto.conf", settings)), port=1883)

    def traffic(self, lab: Lab) -> Truth:
        address = lab.address("broker")
        reader = lab.start("reader", "mosquitto_sub", "-h", address, "-t", "news", "-q", "1", "-i", "reader")
        time.sleep(0.5)
        words = (
            f"for n in $(seq {self.count}); do sleep 0.12; echo $n; done | mosquitto_pub -h {address} -t news -q 1 -l"
        )
        lab.run("client", "sh", "-c", words)
        time.sleep(0.3)
        reader.terminate()
        time.sleep(0.2)
        log = (lab.folder / "broker-mosquitto.out").read_text("utf-8")
        sent = log.count("Sending PUBLISH") + log.count("Sending PUBACK")
        greetings = 4  # CONNACK of both, SUBACK, and room for one more
        server = f"{address}:1883"
        return Truth(streams=[StreamTruth(server, 2, (sent, sent + greetings))], only=ONLY_STREAMS)


NATS_CLIENT = """
import socket, sys, time
address, role, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with socket.create_connection((address, 4222)) as link:
    said = link.makefile("rb")
    assert said.readline().startswith(b"INFO ")
    link.sendall(b'CONNECT {"verbose":false,"pedantic":false}' + bytes((13, 10)) + b"PING" + bytes((13, 10)))
    assert said.readline().startswith(b"PONG")
    if role == "reader":
        link.sendall(b"SUB news 1" + bytes((13, 10)))
        print("ready", flush=True)
        for _ in range(count):
            assert said.readline().startswith(b"MSG news 1 ")
            print(said.readline().decode().strip(), flush=True)
    else:
        for number in range(count):
            time.sleep(0.12)
            link.sendall(b"PUB news 5" + bytes((13, 10)) + b"%05d" % number + bytes((13, 10)))
        time.sleep(0.3)
"""


@scenario
class Nats(Scenario):
    """A publisher and a subscriber."""

    name = "nats"
    words = "NATS; one publisher, one subscriber, 20 messages"
    hosts = addresses(client="10.68.0.10", reader="10.68.0.15", broker="10.68.0.20")
    needs = (("nats-server", "nats-server"),)
    count = 20

    def start(self, lab: Lab) -> None:
        self.client = str(lab.file("client.py", NATS_CLIENT))
        lab.start("broker", "nats-server", "-a", lab.address("broker"), "-p", "4222", port=4222)

    def traffic(self, lab: Lab) -> Truth:
        address = lab.address("broker")
        lab.start("reader", PYTHON, self.client, address, "reader", str(self.count), name="reader")
        time.sleep(0.5)
        lab.run("client", PYTHON, self.client, address, "writer", str(self.count))
        got = (lab.folder / "reader-reader.out").read_text("utf-8").count("\n") - 1  # "ready"
        greetings = 4  # INFO and PONG to each
        return Truth(streams=[StreamTruth(f"{address}:4222", 2, (got, got + greetings))], only=ONLY_STREAMS)


@scenario
class Etcd(Scenario):
    """A watch over gRPC, and puts of other clients."""

    name = "etcd-watch"
    words = "etcd; a watch over HTTP/2 that gets 12 changes, a put each"
    hosts = addresses(client="10.68.0.10", reader="10.68.0.15", store="10.68.0.20")
    needs = (("etcd", "etcd-server"), ("etcdctl", "etcd-client"))
    count = 12

    def start(self, lab: Lab) -> None:
        url = f"http://{lab.address('store')}:2379"
        words = ("--data-dir", str(lab.folder / "etcd"), "--listen-client-urls", url, "--advertise-client-urls", url)
        lab.start("store", "etcd", *words, "--listen-peer-urls", "http://127.0.0.1:2380", port=2379)
        time.sleep(2)  # it elects itself

    def traffic(self, lab: Lab) -> Truth:
        client = ("env", "ETCDCTL_API=3", "etcdctl", "--endpoints", f"http://{lab.address('store')}:2379")
        reader = lab.start("reader", *client, "watch", "key", name="reader")
        time.sleep(1)
        for number in range(self.count):
            lab.run("client", *client, "put", "key", str(number))
            time.sleep(0.1)
        time.sleep(0.3)
        reader.terminate()
        log = (lab.folder / "reader-reader.out").read_text("utf-8")
        got, server = log.count("PUT\n"), f"{lab.address('store')}:2379"
        return Truth(streams=[StreamTruth(server, 1, (got, 3 * got))], only=ONLY_STREAMS)


@scenario
class PostgreSQLListen(Scenario):
    """A listener that gets 15 notifications, statements of 30 ms, and an answer in pieces."""

    name = "postgresql-listen"
    words = "PostgreSQL; a listener, 15 notifications, and an answer of 1.5 s in pieces"
    hosts = addresses(client="10.68.0.10", reader="10.68.0.15", db="10.68.0.20")
    needs = (
        *postgresql.PostgreSQL.needs,
        ("/usr/lib/python3/dist-packages/psycopg2", "python3-psycopg2"),
    )
    count = 15
    pieces = "COPY (SELECT pg_sleep(0.06), repeat('x', 9000) FROM generate_series(1, 25)) TO STDOUT"

    def start(self, lab: Lab) -> None:
        postgresql.start_postgresql(lab, "db")

    def traffic(self, lab: Lab) -> Truth:
        address, log = lab.address("db"), lab.folder / "db-postgres.out"
        marks = log.stat().st_size
        heard = lab.folder / "reader.log"
        reader = lab.start("reader", PYTHON, APPS, "listen", address, str(heard), name="listener")
        time.sleep(1)
        psql = ("env", "PGSSLMODE=disable", "psql", "-h", address, "-U", "postgres", "-q")
        for _ in range(self.count):
            lab.run("client", *psql, "-c", "NOTIFY jobs", "postgres")
        lab.run("client", *psql, "-o", "/dev/null", "-c", self.pieces, "postgres")
        time.sleep(0.3)
        reader.terminate()
        got, server = lines(heard, "notified"), f"{address}:{postgresql.PORT}"
        port = {call.client_port for call in self.calls(lab, marks, server, listening=True)}
        calls = [call for call in self.calls(lab, marks, server) if call.client_port not in port or not call.server_ns]
        return Truth(calls=calls, streams=[StreamTruth(server, 1, (got, got + 1))])

    def calls(self, lab: Lab, marks: int, server: str, *, listening: bool = False) -> list:  # type: ignore[type-arg]
        """What the log has; of the listener only, if so asked."""
        text = (lab.folder / "db-postgres.out").read_text("utf-8")[marks:]
        chosen = [line for line in text.splitlines(keepends=True) if not listening or "LISTEN" in line]
        return postgresql.statements("".join(chosen), server)


@scenario
class Ssh(Scenario):
    """Two sessions: one that waits a second within a command, one that is typed into."""

    name = "ssh"
    words = "OpenSSH; two sessions of a second or more"
    hosts = addresses(client="10.68.0.10", server="10.68.0.20")
    needs = (("/usr/sbin/sshd", "openssh-server"), ("ssh", "openssh-client"))

    def start(self, lab: Lab) -> None:
        key, host_key = lab.folder / "key", lab.folder / "host_key"
        for path in (key, host_key):
            lab.tool("server", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))
        lab.tool("server", "mkdir", "-p", "/run/sshd")
        allowed = lab.file("authorized", (lab.folder / "key.pub").read_text("utf-8"))
        settings = (
            f"ListenAddress {lab.address('server')}\nHostKey {host_key}\nAuthorizedKeysFile {allowed}\n"
            f"StrictModes no\nPermitRootLogin yes\nUsePAM no\nPidFile {lab.folder}/sshd.pid\n"
        )
        lab.start("server", "/usr/sbin/sshd", "-D", "-e", "-f", str(lab.file("sshd.conf", settings)), port=22)

    def traffic(self, lab: Lab) -> Truth:
        words = ("-i", str(lab.folder / "key"), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")
        ssh = " ".join(("ssh", *words, f"root@{lab.address('server')}"))
        lab.run("client", "sh", "-c", f"{ssh} 'echo begun; sleep 1; echo ended'")
        typed = "for n in 1 2 3 4 5 6; do echo echo $n; sleep 0.25; done"
        lab.run("client", "sh", "-c", f"({typed}) | {ssh} sh")
        server = f"{lab.address('server')}:22"
        return Truth(streams=[StreamTruth(server, 2, (10, 100))], only=(*ONLY_STREAMS, "requests of clients"))
