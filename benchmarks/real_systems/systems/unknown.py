"""Systems whose protocols are not read, or are encrypted: requests only where a client and a server take turns.

Some clients wait for each answer before they ask again; then turns are the requests, and their number has to be right.
The others send while an answer is due or on its way; of these no request may be shown, only their messages.

Truth: the servers' logs, or how many requests their clients were given to make.
"""

import re
import sys
from typing import ClassVar

from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.systems import postgresql
from benchmarks.real_systems.truth import Truth
from benchmarks.real_systems.verdict import Verdict

PYTHON = sys.executable
LINES_CLIENT = """
import ftplib, imaplib, sys, time
kind, address, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
asked = 0
def imap():
    global asked
    link = imaplib.IMAP4(address, port); asked += 1  # CAPABILITY
    link.login("judge", "secret"); asked += 1
    link.select(); asked += 1
    for n in range(count):
        link.search(None, "ALL"); link.status("INBOX", "(MESSAGES)"); asked += 2
        time.sleep(0.005)
    link.logout(); asked += 1
def ftp():
    global asked
    link = ftplib.FTP(); link.connect(address, port)
    link.login(); asked += 2
    for n in range(count):
        link.pwd(); link.voidcmd("NOOP"); asked += 2
        time.sleep(0.005)
    link.quit(); asked += 1
{"imap": imap, "ftp": ftp}[kind]()
print(asked)
"""


class _Unknown(Scenario):
    """A client, and a server on one port."""

    hosts = addresses(client="10.68.0.10", server="10.68.0.20")
    port: ClassVar[int]
    are_turns: ClassVar[bool]
    opening: ClassVar[int] = 0
    """Requests that the client's library makes before, at most."""

    def traffic(self, lab: Lab) -> Truth:
        count = self.ask(lab)
        return Truth(only=("words like None",), more={"requests": count})

    def ask(self, lab: Lab) -> int:
        """What the client does; returns the number of requests."""
        raise NotImplementedError

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        server = f"{self.hosts['server'].split()[0]}:{self.port}"
        requests = sum(row["server"] == server for row in said.exchanges.to_dicts())
        streams = [row for row in said.streams if row["server"] == server]
        words = f"{requests} requests, {len(streams)} streams"
        words += "".join(f"; {text}" for text in sorted({row["evidence"] for row in streams})[:2])
        true, opening = int(truth.more["requests"]), self.opening
        if self.are_turns:
            right = true <= requests <= true + opening and not streams
            more = f", and at most {opening} that open sessions" if opening else ""
            return [Verdict("requests by turn-taking", f"{true}{more}", words, right)]
        right = requests == 0 and bool(streams)
        return [Verdict("requests of a stream", f"{true}, not to be counted from outside", words, right)]


class _Ldap(_Unknown):
    """OpenLDAP with 50 entries."""

    needs = (("slapd", "slapd"), ("ldapsearch", "ldap-utils"))
    port = 389

    def start(self, lab: Lab) -> None:
        data = lab.folder / "ldap"
        data.mkdir(exist_ok=True)
        people = "".join(f"\ndn: cn=p{n},dc=lab\nobjectClass: device\ncn: p{n}\n" for n in range(50))
        base = "dn: dc=lab\nobjectClass: dcObject\nobjectClass: organization\no: lab\ndc: lab\n"
        settings = (
            "include /etc/ldap/schema/core.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\nsizelimit unlimited\n"
            f"database mdb\nsuffix dc=lab\ndirectory {data}\nrootdn cn=admin,dc=lab\nrootpw secret\n"
        )
        config = str(lab.file("slapd.conf", settings))
        lab.tool("server", "slapadd", "-f", config, "-l", str(lab.file("base.ldif", base + people)))
        url = f"ldap://{lab.address('server')}:{self.port}"
        lab.start("server", "slapd", "-f", config, "-h", url, "-d", "256", port=self.port)


@scenario
class Ldap(_Ldap):
    """A bind, then searches."""

    name = "unknown-ldap"
    words = "OpenLDAP; ldapsearch, 100 searches on one connection"
    are_turns = True

    def ask(self, lab: Lab) -> int:
        names = lab.file("names", "".join(f"p{n % 60}\n" for n in range(100)))
        words = ("-x", "-D", "cn=admin,dc=lab", "-w", "secret", "-b", "dc=lab", "-f", str(names), "(cn=%s)")
        lab.run("client", "ldapsearch", "-H", f"ldap://{lab.address('server')}", *words, check=False)
        log = (lab.folder / "server-slapd.out").read_text("utf-8")
        return len(re.findall(r"op=\d+ (?:SRCH base|BIND dn=\S+ method)", log))


class _Lines(_Unknown):
    """A client that sends lines, and counts them."""

    kind: ClassVar[str]
    count: ClassVar[int] = 20
    are_turns = True

    def ask(self, lab: Lab) -> int:
        program = str(lab.file("client.py", LINES_CLIENT))
        words = (self.kind, lab.address("server"), str(self.port), str(self.count))
        return int(lab.run("client", PYTHON, program, *words))


@scenario
class Imap(_Lines):
    """A session of a mail reader."""

    name = "unknown-imap"
    words = "Dovecot; 20 times SEARCH and STATUS on one connection"
    needs = (("dovecot", "dovecot-imapd"),)
    kind, port = "imap", 143

    def start(self, lab: Lab) -> None:
        folder = lab.folder / "dovecot"
        (folder / "mail").mkdir(parents=True, exist_ok=True)
        settings = (
            f"base_dir = {folder}/run\nstate_dir = {folder}/state\nlog_path = {folder}/log\n"
            f"protocols = imap\nssl = no\nlisten = {lab.address('server')}\ndisable_plaintext_auth = no\n"
            f"mail_location = maildir:{folder}/mail\n"
            "first_valid_uid = 0\nmail_uid = nobody\nmail_gid = nogroup\nmail_access_groups =\n"
            "default_internal_user = nobody\ndefault_login_user = nobody\ndefault_internal_group = nogroup\n"
            "passdb {\n driver = static\n args = password=secret\n}\n"
            f"userdb {{\n driver = static\n args = uid=nobody gid=nogroup home={folder}/mail\n}}\n"
        )
        lab.tool("server", "chown", "-R", "nobody:nogroup", str(folder / "mail"))
        lab.start("server", "dovecot", "-F", "-c", str(lab.file("dovecot.conf", settings)), port=self.port)


@scenario
class Ftp(_Lines):
    """The control connection alone."""

    name = "unknown-ftp"
    words = "vsftpd; the control connection, 40 commands"
    needs = (("vsftpd", "vsftpd"),)
    kind, port = "ftp", 21

    def start(self, lab: Lab) -> None:
        root = lab.folder / "ftp"
        root.mkdir(exist_ok=True)
        root.chmod(0o555)
        lab.tool("server", "mkdir", "-p", "/var/run/vsftpd/empty")
        settings = (
            f"listen=YES\nlisten_address={lab.address('server')}\nanonymous_enable=YES\nanon_root={root}\n"
            "background=NO\nseccomp_sandbox=NO\n"
        )
        lab.start("server", "vsftpd", str(lab.file("vsftpd.conf", settings)), port=self.port)


class _Dns(_Unknown):
    """Unbound behind a cable of 1 ms."""

    needs = (("unbound", "unbound"), ("dnsperf", "dnsperf"))
    port = 53
    at_once: ClassVar[int]
    count = 400
    one_way_ms = 1.0

    def start(self, lab: Lab) -> None:
        settings = (
            f'server:\n interface: {lab.address("server")}\n access-control: 0.0.0.0/0 allow\n chroot: ""\n'
            f' username: ""\n do-daemonize: no\n use-syslog: no\n pidfile: ""\n directory: "{lab.folder}"\n'
            " tcp-idle-timeout: 60000\n"
            ' local-zone: "lab." static\n local-data: "a.lab. A 10.0.0.1"\n module-config: "iterator"\n'
            "remote-control:\n control-enable: no\n"
        )
        lab.slow_link("server").delay(self.one_way_ms)
        lab.start("server", "unbound", "-d", "-c", str(lab.file("unbound.conf", settings)), port=self.port)

    def ask(self, lab: Lab) -> int:
        names = lab.file("queries", "a.lab A\nb.lab A\n" * (self.count // 2))
        words = ("-m", "tcp", "-s", lab.address("server"), "-d", str(names), "-n", "1", "-c", "1", "-T", "1")
        said = lab.run("client", "dnsperf", *words, "-q", str(self.at_once))
        found = re.search(r"Queries completed:\s+(\d+)", said)
        return int(found.group(1)) if found else 0


@scenario
class Dns(_Dns):
    """One query at a time."""

    name = "unknown-dns"
    words = "Unbound; dnsperf over TCP, one query at a time"
    at_once, are_turns = 1, True


@scenario
class DnsAtOnce(_Dns):
    """Many at a time."""

    name = "unknown-dns-at-once"
    words = "the same, 50 queries at once"
    at_once, are_turns = 50, False


class _Nbd(_Unknown):
    """A disk of 64 MB."""

    needs = (("qemu-nbd", "qemu-utils"), ("qemu-img", "qemu-utils"))
    port = 10809
    depth: ClassVar[int]
    count, opening = 500, 5

    def start(self, lab: Lab) -> None:
        image = str(lab.folder / "image")
        lab.tool("server", "truncate", "-s", "64M", image)
        words = ("-f", "raw", "-b", lab.address("server"), "-p", str(self.port), "-t", "-x", "disk", image)
        lab.start("server", "qemu-nbd", *words, port=self.port)

    def ask(self, lab: Lab) -> int:
        url = f"nbd://{lab.address('server')}:{self.port}/disk"
        lab.run("client", "qemu-img", "bench", "-f", "raw", "-d", str(self.depth), "-c", str(self.count), url)
        return self.count


@scenario
class Nbd(_Nbd):
    """One read at a time."""

    name = "unknown-nbd"
    words = "NBD of QEMU; 500 reads, one at a time"
    depth, are_turns = 1, True


@scenario
class NbdAtOnce(_Nbd):
    """Many at a time."""

    name = "unknown-nbd-at-once"
    words = "the same, 16 reads at once"
    depth, are_turns = 16, False


class _Tls(_Unknown):
    """A server with a certificate."""

    def certificate(self, lab: Lab, owner: str = "root") -> tuple[str, str]:
        key, cert = str(lab.folder / "tls.key"), str(lab.folder / "tls.crt")
        made = ("-keyout", key, "-out", cert, "-subj", "/CN=server", "-days", "2")
        lab.run("server", "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *made)
        lab.tool("server", "chown", owner, key)
        lab.tool("server", "chmod", "600", key)
        return key, cert


@scenario
class RedisTls(_Tls):
    """redis-benchmark."""

    name = "unknown-redis-tls"
    words = "Redis in TLS; redis-benchmark, 2 connections"
    are_turns = True
    needs = (("redis-server", "redis-server"), ("redis-benchmark", "redis-tools"), ("openssl", "openssl"))
    port = 6380
    count = 1000
    clients, opening = 2, 2

    def start(self, lab: Lab) -> None:
        key, cert = self.certificate(lab)
        words = ("--port", "0", "--tls-port", str(self.port), "--tls-cert-file", cert, "--tls-key-file", key)
        more = ("--tls-auth-clients", "no", "--save", "", "--protected-mode", "no", "--bind", lab.address("server"))
        lab.start("server", "redis-server", *words, *more, port=self.port)

    def ask(self, lab: Lab) -> int:
        words = ("--tls", "--insecure", "-h", lab.address("server"), "-p", str(self.port), "-t", "get")
        words += ("-n", str(self.count), "-c", str(self.clients), "-q")
        lab.run("client", "redis-benchmark", *words)
        return self.count


@scenario
class PostgreSQLTls(_Tls):
    """Two connections."""

    name = "unknown-postgresql-tls"
    words = "PostgreSQL in TLS; pgbench, one statement at a time"
    script, statements, are_turns = "SELECT 1;\nSELECT repeat('x', 3000);\n", 2, True
    needs = postgresql.PostgreSQL.needs
    port = postgresql.PORT
    count, opening = 100, 6

    def start(self, lab: Lab) -> None:
        postgresql.start_postgresql(lab, "server")
        key, cert = self.certificate(lab, "postgres")
        self.psql(lab, f"ALTER SYSTEM SET ssl_cert_file = '{cert}'")
        self.psql(lab, f"ALTER SYSTEM SET ssl_key_file = '{key}'")
        self.psql(lab, "ALTER SYSTEM SET ssl = on")
        self.psql(lab, "SELECT pg_reload_conf()")

    def psql(self, lab: Lab, statement: str) -> None:
        ends = ("-h", lab.address("server"), "-U", "postgres", "-q")
        lab.run("server", "env", "PGSSLMODE=disable", "psql", *ends, "-c", statement, "postgres")

    def ask(self, lab: Lab) -> int:
        script = str(lab.file("script.sql", self.script))
        words = ("-h", lab.address("server"), "-U", "postgres", "-n", "-M", "extended", "-f", script)
        words += ("-c", "2", "-t", str(self.count))
        lab.run("client", "env", "PGSSLMODE=require", "pgbench", *words, "postgres")
        return 2 * self.count * self.statements
