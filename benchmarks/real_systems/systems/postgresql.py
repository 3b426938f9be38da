"""PostgreSQL, by pgbench.

Truth: PostgreSQL's log of every statement with its duration (µs) and the client's port, and of every session opened,
which is an exchange on the wire, too.
"""

import re
from pathlib import Path

from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Truth

PORT = 5432
AS_USER = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")
SETTINGS = """listen_addresses = '*'
unix_socket_directories = ''
logging_collector = off
log_line_prefix = '%n\t%r\t'
log_min_duration_statement = 0
log_connections = on
fsync = off
autovacuum = off
"""
LINE = re.compile(
    r"^([\d.]+)\t[\d.]+\((\d+)\)\tLOG:  (?:duration: ([\d.]+) ms  (?!parse|bind)|(connection authorized))", re.MULTILINE
)


def start_postgresql(lab: Lab, host: str) -> None:
    """A new cluster that trusts everybody."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    data = lab.folder / "pg"
    data.mkdir()
    for folder in (lab.folder, *lab.folder.parents[:2]):
        folder.chmod(0o755)
    lab.tool(host, "chown", "postgres", str(data))
    lab.run(host, *AS_USER, str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres", "-N")
    (data / "postgresql.auto.conf").write_text(SETTINGS)
    with (data / "pg_hba.conf").open("a") as rules:
        rules.write("host all all 10.68.0.0/16 trust\n")
    lab.start(host, *AS_USER, str(binaries / "postgres"), "-D", str(data), port=PORT, name="postgres")
    lab.run(host, "pgbench", "-h", "127.0.0.1", "-U", "postgres", "-i", "-s", "2", "-q", "postgres")


def statements(text: str, server: str) -> list[Call]:
    """What other hosts asked, by PostgreSQL's log: sessions and statements."""
    found = []
    for number, (at_s, port, took_ms, opened) in enumerate(LINE.findall(text)):
        call = Call(f"pg {number}", server, client_port=int(port), started_ns=round(float(at_s) * 1e9), parent="")
        call.server_ns = None if opened else round(float(took_ms) * 1e6)
        found.append(call)
    return found


@scenario
class PostgreSQL(Scenario):
    """pgbench's own transactions, simple protocol, then statements of 30 ms."""

    name = "postgresql"
    words = "PostgreSQL; pgbench: 60 transactions, then 4 sessions with statements of 30 ms"
    hosts = addresses(client="10.68.0.10", db="10.68.0.20")
    needs = (
        ("/usr/lib/postgresql/*/bin/postgres", "postgresql"),
        ("pgbench", "postgresql"),
    )
    mode = "simple"

    def start(self, lab: Lab) -> None:
        start_postgresql(lab, "db")

    def traffic(self, lab: Lab) -> Truth:
        address = lab.address("db")
        sleeping = lab.file("sleep.sql", "SELECT pg_sleep(0.03);\n")
        where = ("env", "PGSSLMODE=disable", "pgbench", "-h", address, "-U", "postgres", "-n", "-M", self.mode)
        marks = (lab.folder / "db-postgres.out").stat().st_size
        lab.run("client", *where, "-c", "1", "-t", "60", "postgres")
        lab.run("client", *where, "-c", "4", "-t", "20", "-f", str(sleeping), "postgres")
        text = (lab.folder / "db-postgres.out").read_text("utf-8")[marks:]
        server = f"{address}:{PORT}"
        return Truth(calls=statements(text, server), names={server: r"postgres(ql)?|db:5432"})
