"""MariaDB, by its own client, and by PyPI's PyMySQL and mysql-connector-python.

Truth of its own client: MariaDB's slow log with a threshold of 0, which has every statement and how long it took (µs),
and its general log, which has every session opened: on the wire an exchange, too (the client answers the greeting). Of
the others: what the program itself asked, which errors it got, and how long each took. That scenario needs an
interpreter that has both: this one, or the one that the environment variable REAL_SYSTEMS_PYTHON names.
"""

import json
import re
from pathlib import Path

from benchmarks.real_systems.interpreter import python_with
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

VALUE = re.compile(r"'[^']*'|\b\d+(?:\.\d+)?\b")
DRIVERS = r"""
import json, sys, tempfile, time
import mysql.connector, pymysql
from pymysql.constants import CLIENT
WHERE = dict(host=sys.argv[1], port=int(sys.argv[2]), user="judge", database="judge", autocommit=True)
WHERE |= dict(ssl_disabled=True)
PORT = 0
def note(name, began, code="", is_timed=True):
    took_ns = time.time_ns() - began if is_timed else None
    print(json.dumps(dict(port=PORT, name=name, code=code, began_ns=began, took_ns=took_ns)), flush=True)
def note_time(name, call, *arguments, code=""):
    began, found = time.time_ns(), ""
    try:
        call(*arguments)
    except (pymysql.MySQLError, mysql.connector.Error) as error:
        found = str(error.args[0])
    assert found == code, (found, name)
    note(name, began, code)
def ask(name, text, values=None, code=""):
    def all_results():
        with connection.cursor() as cursor:
            cursor.execute(text, values)
            while cursor.nextset():
                pass
    note_time(name, all_results, code=code)
began = time.time_ns()
connection = pymysql.connect(**WHERE, local_infile=True, client_flag=CLIENT.MULTI_STATEMENTS)
PORT = connection._sock.getsockname()[1]
for name in ("LOGIN", "SET NAMES utf8mb4"):
    note(name, began, is_timed=False)
ask("CREATE TABLE words (id int, word text)", "create table words (id int, word text)")
for n in range(3):
    rows = f"({n}, 'it\\'s {n}'), ({n + 10}, \"it's {n}\")"
    ask("INSERT INTO words VALUES (?)", f"insert into words values {rows}")
named = "SELECT id, word FROM words WHERE id IN (?) ORDER BY id"
ask(named, "select id,  word from words\nwhere id in (%s, %s) /* why */ order by id # all of them", (1, 2))
ask("SELECT * FROM nowhere", "SELECT * FROM nowhere", code="1146")
ask("SELECT FROM", "SELECT FROM", code="1064")
ask("SELECT sleep(?)", "SELECT sleep(0.03)")
ask("SELECT ?; UPDATE words SET word = ? WHERE id = ?", "SELECT 1; UPDATE words SET word = 'x' WHERE id = 1")
ask("SELECT repeat(?) FROM seq_1_to_100", "SELECT repeat('x', 100) FROM seq_1_to_100")
ask("SELECT id FROM words WHERE id > ?", "SELECT id FROM words WHERE id > 1000")
note_time("PING", connection.ping, False)
note_time("USE judge", connection.select_db, "judge")
note_time("BEGIN", connection.begin)
note_time("COMMIT", connection.commit)
with tempfile.NamedTemporaryFile("w") as file:
    file.writelines(f"{n}\tword {n}\n" for n in range(2000))
    file.flush()
    ask("LOAD DATA LOCAL INFILE ? INTO TABLE words", f"LOAD DATA LOCAL INFILE '{file.name}' INTO TABLE words")
connection.close()
other = mysql.connector.connect(**WHERE, use_pure=True)
PORT = other._socket.sock.getsockname()[1]
cursor = other.cursor(prepared=True)
for name in ("LOGIN", "SET NAMES ? COLLATE ?", "SET @@session.autocommit = ON", "PING"):
    note(name, time.time_ns(), is_timed=False)
named = "SELECT word FROM words WHERE id > ? AND word <> ? LIMIT ?"
for n in range(20):  # one exchange prepares it, and one resets it before each execution
    for name in (*[f"PREPARE {named}"] * (not n), "RESET STATEMENT", named):
        note(name, time.time_ns(), is_timed=False)
    cursor.execute("SELECT word FROM words WHERE id > ? AND word <> ? LIMIT 3", (n, "x"))
    cursor.fetchall()
other.close()
"""


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
            call.name = name_of(text)
            found.append(call)
    return found


def name_of(statement: str) -> str:
    """A statement of this scenario without its values."""
    text = VALUE.sub("?", statement.strip().removesuffix(";"))
    text = text.replace("(?, ?)", "(?)").replace(" limit ", " LIMIT ")
    return text[:1].upper() + text[1:] if not text.startswith("select") else text.replace("select", "SELECT", 1)


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
            Call(f"session {thread}", server, started_ns=int(thread) * OF_A_SESSION, parent="", name="LOGIN")
            for thread in OPENED.findall(general)
        ]
        truth = Truth(calls=[*statements(slow, server), *opened], names={server: rf"mariadb|mysql|db:{PORT}"})
        slept = sum(call.server_ns or 0 for call in truth.calls) / len(truth.calls)
        truth.ledger = {"queue_ns+work_ns": (slept, slept)}
        return truth


@scenario
class MariaDBDrivers(MariaDB):
    """All that drivers do: text and prepared statements, several results, a file, errors."""

    name = "mariadb-drivers"
    words = "MariaDB; PyMySQL and mysql-connector: text and prepared statements, several results, a file, errors"
    needs = (*MariaDB.needs, ("python:pymysql", "PyMySQL"), ("python:mysql.connector", "mysql-connector-python"))

    def traffic(self, lab: Lab) -> Truth:
        address, program = lab.address("db"), str(lab.file("drivers.py", DRIVERS))
        lab.file("drivers.log", lab.run("client", python_with("pymysql"), program, address, str(PORT)))
        server, calls = f"{address}:{PORT}", []
        for number, line in enumerate(json.loads(text) for text in (lab.folder / "drivers.log").open()):
            call = Call(f"driver {number}", server, client_port=line["port"], started_ns=line["began_ns"], parent="")
            call.client_ns, call.name, call.result = line["took_ns"], line["name"], line["code"]
            calls.append(call)
        truth = Truth(calls=calls, names={server: rf"mariadb|mysql|db:{PORT}"})
        truth.only = (
            "requests",
            "durations",
            "names",
            "errors",
            "failed",
            "abandoned",
            "service",
            "packets",
            "findings",
        )
        return truth


def _since(log: Path, mark: int) -> str:
    return log.read_bytes()[mark:].decode("utf-8", "replace")
