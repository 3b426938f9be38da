"""PostgreSQL, by pgbench and by PyPI's psycopg.

Truth of pgbench: PostgreSQL's log of every statement with its text, its duration (µs) and the client's port, and of
every session opened, which is an exchange on the wire, too. Of psycopg: what the program itself asked, which errors it
got, and how long each took. Its scenario needs an interpreter that has psycopg: this one, or the one that the
environment variable REAL_SYSTEMS_PYTHON names.
"""

import json
import re
from pathlib import Path

from benchmarks.real_systems.interpreter import python_with
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
    r"^([\d.]+)\t[\d.]+\((\d+)\)\tLOG:  "
    r"(?:duration: ([\d.]+) ms  (statement|execute|parse)(?: [^:]*)?: (.*(?:\n(?!\d+\.).*)*)|(connection authorized))",
    re.MULTILINE,
)
NUMBER = re.compile(r"(?<![\w$])-?\d+(?:\.\d+)?|\$\d+|'[^']*'")
LONGEST_NAMED = 120
QUERY_CANCELED = "57014"
DRIVER = r"""
import json, socket, sys, threading, time
import psycopg
PORTS = {}
def note(connection, name, began, code="", is_timed=True):
    took_ns = time.time_ns() - began if is_timed else None
    print(json.dumps(dict(port=PORTS[connection], name=name, code=code, began_ns=began, took_ns=took_ns)), flush=True)
def connect(**more):
    began = time.time_ns()
    connection = psycopg.connect(sys.argv[1], autocommit=True, **more)
    with socket.fromfd(connection.pgconn.socket, socket.AF_INET, socket.SOCK_STREAM) as own:
        PORTS[connection] = own.getsockname()[1]
    note(connection, "STARTUP", began, is_timed=False)
    return connection
def ask(connection, name, text, values=None, code=""):
    began, found = time.time_ns(), ""
    try:
        answer = connection.execute(text, values)
        if answer.description:
            answer.fetchall()
    except psycopg.Error as error:
        found = error.sqlstate
    assert found == code, (found, text)
    note(connection, name, began, code)
def ask_simple(connection):
    ask(connection, "CREATE TABLE orders (id int, name text)", "create table orders (id int, name text)")
    for n in range(3):
        rows = f"({n}, 'a {n}'), ({n + 10}, E'it\\'s'), ({n + 20}, $q$ $ $q$)"
        ask(connection, "INSERT INTO orders (id, name) VALUES (?)", f"insert into orders (id, name) values {rows}")
    named = "SELECT id, name FROM orders WHERE id IN (?) ORDER BY id"
    ask(connection, named, "select id,  name from orders\nwhere id in (1, 2, 3) /* why */ order by id -- all of them")
    ask(connection, "BEGIN ; DELETE FROM orders WHERE id = ?; COMMIT", "BEGIN; DELETE FROM orders WHERE id = 2; COMMIT")
    ask(connection, "SELECT * FROM nowhere WHERE name = ?", "SELECT * FROM nowhere WHERE name = 'x'", code="42P01")
    ask(connection, "SELECT ? / ?", "SELECT 1 / 0", code="22012")
    ask(connection, "SELECT pg_sleep(?)", "SELECT pg_sleep(0.03)")
    ask(connection, "SELECT repeat(?) FROM generate_series(?)", "SELECT repeat('x', 200) FROM generate_series(1, 2000)")
def ask_extended(connection):
    named = "SELECT name FROM orders WHERE id = ? AND name <> ?"
    for n in range(9):  # prepared at the server from the sixth on
        if n == 5:
            note(connection, "PREPARE " + named, time.time_ns(), is_timed=False)
        ask(connection, named, "SELECT name FROM orders WHERE id = %s AND name <> %s", (n, "x"))
    ask(connection, "SELECT ?::int / ?::int", "SELECT %s::int / %s::int", (1, 0), code="22012")
    ask(connection, "INSERT INTO orders VALUES (?)", "INSERT INTO orders VALUES (%s, %s)", (1000, "x" * 20_000))
    ask(connection, "SELECT pg_sleep(?)", "SELECT pg_sleep(%s)", (0.03,))
def transactions(connection):
    began = time.time_ns()
    with connection.transaction():
        note(connection, "BEGIN", began)
        text = "UPDATE orders SET name = %s WHERE id = %s"
        ask(connection, "UPDATE orders SET name = ? WHERE id = ?", text, ("y", 1))
        began = time.time_ns()
    note(connection, "COMMIT", began)
def ask_pipeline(connection):
    with connection.pipeline() as line:
        for n in range(8):
            began = time.time_ns()
            for m in range(3):
                connection.execute("SELECT count(*) FROM orders WHERE id > 5")
            note(connection, "SELECT count(*) FROM orders WHERE id > ? (+2)", began, is_timed=False)
            line.sync()
        note(connection, "SYNC", time.time_ns(), is_timed=False)
def copies(connection, first, code):
    began, found = time.time_ns(), ""
    try:
        with connection.cursor().copy("COPY orders (id, name) FROM STDIN") as copy:
            for n in range(2000):
                copy.write_row((first if n == 1000 else n, f"row {n}"))
    except psycopg.Error as error:
        found = error.sqlstate
    assert found == code
    note(connection, "COPY orders (id, name) FROM STDIN", began, code)
    began = time.time_ns()
    with connection.cursor().copy("COPY orders TO STDOUT") as copy:
        for _ in copy:
            pass
    note(connection, "COPY orders TO STDOUT", began)
with connect() as one:
    for part in (ask_simple, ask_extended, transactions, ask_pipeline):
        part(one)
    copies(one, 1, "")
    copies(one, "x", "22P02")
    threading.Timer(0.05, one.cancel).start()
    ask(one, "SELECT pg_sleep(?)", "SELECT pg_sleep(5)", code="57014")
with connect(prepare_threshold=0) as other:
    named = "SELECT count(*) FROM orders WHERE id > ?"
    note(other, "PREPARE " + named, time.time_ns(), is_timed=False)
    for n in range(20):
        ask(other, named, "SELECT count(*) FROM orders WHERE id > %s", (n,))
"""


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
    """What other hosts asked, by PostgreSQL's log: sessions, statements, and statements that were only prepared."""
    found = []
    for number, (at_s, port, took_ms, how, statement, opened) in enumerate(LINE.findall(text)):
        call = Call(f"pg {number}", server, client_port=int(port), started_ns=round(float(at_s) * 1e9), parent="")
        call.server_ns = None if opened or how == "parse" else round(float(took_ms) * 1e6)
        call.name = "STARTUP" if opened else name_of(statement)
        if how == "parse" and call.name:
            call.name = f"PREPARE {call.name}"
        found.append(call)
    return found


def name_of(statement: str) -> str:
    """A statement of pgbench without its values; "" of a long one, which this does not divide into words."""
    text = NUMBER.sub("?", " ".join(statement.split())).removesuffix(";")
    text = re.sub(r"\(\?(, ?\?)*", "(?", re.sub(r" from ", " FROM ", re.sub(r"^select ", "SELECT ", text)))
    return text if len(text) <= LONGEST_NAMED else ""


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


@scenario
class PostgreSQLPrepared(PostgreSQL):
    """The same by the extended protocol, with statements that are prepared once."""

    name = "postgresql-prepared"
    words = "the same, with prepared statements"
    mode = "prepared"


@scenario
class PostgreSQLDriver(Scenario):
    """All that a driver does: both protocols, a pipeline, COPY, errors, a cancelled statement."""

    name = "postgresql-driver"
    words = "PostgreSQL; psycopg: simple and prepared statements, a pipeline, COPY, errors, a cancelled statement"
    hosts = addresses(client="10.68.0.10", db="10.68.0.20")
    needs = (
        ("/usr/lib/postgresql/*/bin/postgres", "postgresql"), ("pgbench", "postgresql"), ("python:psycopg", "psycopg"),
    )  # fmt: skip

    def start(self, lab: Lab) -> None:
        start_postgresql(lab, "db")

    def traffic(self, lab: Lab) -> Truth:
        address, program = lab.address("db"), str(lab.file("driver.py", DRIVER))
        where = f"host={address} user=postgres dbname=postgres sslmode=disable"
        lab.file("driver.log", lab.run("client", python_with("psycopg"), program, where))
        server, calls = f"{address}:{PORT}", []
        for number, line in enumerate(json.loads(text) for text in (lab.folder / "driver.log").open()):
            call = Call(f"psycopg {number}", server, client_port=line["port"], started_ns=line["began_ns"], parent="")
            call.client_ns, call.name, call.result = line["took_ns"], line["name"], line["code"]
            call.status = 500 if line["code"] == QUERY_CANCELED else 200
            calls.append(call)
        return Truth(calls=calls, names={server: r"postgres(ql)?|db:5432"})
