"""MariaDB, by its own client and by mysqlslap.

Truth: MariaDB's slow log with a threshold of 0, which has every statement and how long it took (µs), and its general
log, which has every session opened: on the wire an exchange, too (the server greets, the client answers).
"""

import re
from pathlib import Path

from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Truth

PORT = 3306
SLEEP_S = 0.03
ENTRY = re.compile(
    r"^# Thread_id: (\d+) .*\n# Query_time: ([\d.]+) .*?\n(?:# .*\n|use .*\n)*SET timestamp=(\d+);\n(.*)$", re.MULTILINE
)
OPENED = re.compile(r"\b(\d+) Connect\t")
OF_A_SESSION = 1_000_000
"""Sessions come one after the other: a statement's place is that of its session and its own."""


def start_mariadb(lab: Lab, host: str) -> None:
    """A new server that trusts everybody, with all that it is asked in its logs."""
    data = lab.folder / "mariadb"
    data.mkdir()
    for folder in (lab.folder, *lab.folder.parents[:2]):
        folder.chmod(0o755)
    lab.run(host, "mariadb-install-db", f"--datadir={data}", "--user=root", "--auth-root-authentication-method=normal")
    rules = lab.file("init.sql", "CREATE USER judge@'%';\nGRANT ALL ON *.* TO judge@'%';\nCREATE DATABASE judge;\n")
    lab.start(
        host, "mariadbd", "--no-defaults", f"--datadir={data}", "--user=root", f"--socket={data}/socket",
        f"--bind-address={lab.address(host)}", f"--port={PORT}", f"--init-file={rules}", "--skip-name-resolve",
        f"--pid-file={data}/pid", "--slow-query-log=1", "--long-query-time=0", f"--slow-query-log-file={data}/slow.log",
        "--general-log=1", f"--general-log-file={data}/general.log", "--innodb-flush-log-at-trx-commit=0", port=PORT,
    )  # fmt: skip


def statements(slow_log: str, server: str) -> list[Call]:
    """The statements of the slow log, in its order, which is that of ends."""
    found = []
    for number, (thread, took_s, _, text) in enumerate(ENTRY.findall(slow_log)):
        if "administrator command: Quit" not in text:  # which has no answer
            call = Call(f"mariadb {number}", server, started_ns=int(thread) * OF_A_SESSION + number + 1, parent="")
            call.server_ns = round(float(took_s) * 1e9)
            found.append(call)
    return found


@scenario
class MariaDB(Scenario):
    """One session after the other, so that the log's order is the wire's."""

    name = "mariadb"
    words = "MariaDB; its client: 6 sessions of 20 statements, some of 30 ms"
    hosts = addresses(client="10.68.0.10", db="10.68.0.20")
    needs = (("mariadbd", "mariadb-server"), ("mariadb-install-db", "mariadb-server"), ("mariadb", "mariadb-client"))

    def start(self, lab: Lab) -> None:
        start_mariadb(lab, "db")
        self.ask(lab, "CREATE TABLE judge.t (id INT PRIMARY KEY, word TEXT);")

    def ask(self, lab: Lab, text: str) -> None:
        """One session."""
        file = lab.file("statements.sql", text)
        where = f"mariadb --no-defaults -h {lab.address('db')} -P {PORT} -u judge --skip-ssl -B < {file} > /dev/null"
        lab.run("client", "sh", "-c", where)

    def traffic(self, lab: Lab) -> Truth:
        logs = [lab.folder / "mariadb" / name for name in ("slow.log", "general.log")]
        marks = [log.stat().st_size for log in logs]
        for session in range(6):
            lines = [f"INSERT INTO judge.t VALUES ({session * 100 + n}, '{'w' * 200}');" for n in range(10)]
            lines += [f"SELECT COUNT(*), SLEEP({SLEEP_S}) FROM judge.t WHERE id % 7 = {n} LIMIT 1;" for n in range(2)]
            lines += [f"SELECT * FROM judge.t WHERE id < {n * 20};" for n in range(8)]
            self.ask(lab, "\n".join(lines))
        slow, general = (_since(log, mark) for log, mark in zip(logs, marks, strict=True))
        server = f"{lab.address('db')}:{PORT}"
        opened = [
            Call(f"session {thread}", server, started_ns=int(thread) * OF_A_SESSION, parent="")
            for thread in OPENED.findall(general)
        ]
        truth = Truth(calls=[*statements(slow, server), *opened], names={server: rf"mariadb|mysql|db:{PORT}"})
        slept = sum(call.server_ns or 0 for call in truth.calls) / len(truth.calls)
        truth.ledger = {"queue_ns+work_ns": (slept, slept)}
        return truth


def _since(log: Path, mark: int) -> str:
    return log.read_bytes()[mark:].decode("utf-8", "replace")
