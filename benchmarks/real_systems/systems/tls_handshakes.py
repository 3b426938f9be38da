"""TLS handshakes of every kind, judged by what both ends say of them: versions, names, resumption, retries, failures.

Truth: nginx's log ($ssl_protocol, $ssl_session_reused, $ssl_server_name, $ssl_alpn_protocol), Python's `ssl` objects,
what `openssl s_client` prints, PostgreSQL's view `pg_stat_ssl`, and which failure each client was given cause for.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from benchmarks.real_systems import logs
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.systems.postgresql import start_postgresql
from benchmarks.real_systems.truth import Truth
from benchmarks.real_systems.verdict import Verdict
from benchmarks.real_systems.web_servers import NGINX_NEEDS, start_nginx

ANY, ONLY_13, RETRYING, EARLY, WITH_KEY, DATABASE = 8443, 8444, 8445, 8446, 8447, 5432
NGINX = """  log_format tls '$remote_port\\t$server_port\\t$ssl_protocol\\t$ssl_session_reused\\t$ssl_server_name'
    '\\t$ssl_alpn_protocol';
  ssl_certificate {folder}/tls.crt; ssl_certificate_key {folder}/tls.key; ssl_session_tickets on;
  ssl_session_cache shared:judge:1m; access_log {folder}/tls.log tls;
  server {{ listen {address}:8443 ssl http2; ssl_protocols TLSv1.2 TLSv1.3; return 200 "ok"; }}
  server {{ listen {address}:8444 ssl; ssl_protocols TLSv1.3; return 200 "ok"; }}
  server {{ listen {address}:8445 ssl; ssl_protocols TLSv1.3; ssl_ecdh_curve secp384r1; return 200 "ok"; }}
"""
PYTHON = """
import json, socket, ssl, sys
host, authority = sys.argv[1:]
NAMES = {"TLSv1.2": "1.2", "TLSv1.3": "1.3"}
def ask(port, sni, lowest="TLSv1_2", highest="TLSv1_3", alpn=(), session=None, tickets=True, ciphers="", trusts=True):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE if trusts else ssl.CERT_REQUIRED
    context.minimum_version = getattr(ssl.TLSVersion, lowest)
    context.maximum_version = getattr(ssl.TLSVersion, highest)
    if not tickets:
        context.options |= ssl.OP_NO_TICKET
    if ciphers:
        context.set_ciphers(ciphers)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if session:
        context = session[0]
    plain = socket.create_connection((host, port))
    said = {"server_port": port, "client_port": plain.getsockname()[1], "sni": sni}
    said["alpn_offered"] = ", ".join(alpn)
    kept = None
    try:
        with context.wrap_socket(plain, server_hostname=sni, session=session and session[1]) as own:
            said |= {"version": NAMES[own.version()], "cipher": own.cipher()[0], "alpn": own.selected_alpn_protocol()}
            said["resumed"] = own.session_reused
            if not alpn or own.selected_alpn_protocol() != "h2":
                own.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
                own.recv(4096)
            kept = (context, own.session)
    except (ssl.SSLError, OSError) as error:
        said["failed"] = str(getattr(error, "reason", None) or error)
    print(json.dumps(said), flush=True)
    return kept
for number in range(3):
    for version in ("TLSv1_2", "TLSv1_3"):
        for tickets in (True, False):
            first = ask(8443, "api.example", version, version, ("http/1.1",), tickets=tickets)
            ask(8443, "api.example", version, version, ("http/1.1",), session=first, tickets=tickets)
    ask(8443, "Shop.Example", alpn=("h2", "http/1.1"))
    ask(8443, "shop.example", "TLSv1_2", "TLSv1_2", ("h2", "http/1.1"))
    ask(8444, None)
    ask(8445, "retried.example")
    ask(8443, "long.example", alpn=("http/1.1", *(f"x{n:03}" + "-" * 200 for n in range(12))))
    ask(8443, "api.example", "TLSv1_2", "TLSv1_2", trusts=False)
    ask(8443, "api.example", trusts=False)
    ask(8443, "api.example", "TLSv1_2", "TLSv1_2", ciphers="ECDHE-ECDSA-AES128-GCM-SHA256")
    ask(8444, "api.example", "TLSv1_2", "TLSv1_2")
"""
PROXY = """
import socket, sys, threading
host, web = sys.argv[1:]
listener = socket.create_server((host, 3128))
def pass_on(one, other):
    while data := one.recv(65536):
        other.sendall(data)
    other.shutdown(socket.SHUT_WR)
def serve(client):
    head = b""
    while not head.endswith(b"\\r\\n\\r\\n"):
        head += client.recv(1)
    server = socket.create_connection((web, 8443))
    client.sendall(b"HTTP/1.1 200 Connection established\\r\\n\\r\\n")
    threading.Thread(target=pass_on, args=(client, server), daemon=True).start()
    pass_on(server, client)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
FAILURES = {
    "TLSV1_ALERT_PROTOCOL_VERSION": ("protocol_version", "server"),
    "SSLV3_ALERT_HANDSHAKE_FAILURE": ("handshake_failure", "server"),
}
"""By Python's word for it: the alert, and who sent it."""
OF_SSL = ("tls_version", "tls_cipher", "tls_resumption", "tls_server_name", "tls_alpn", "tls_alpn_offered")
COLUMNS = (*OF_SSL, "tls_alert", "tls_alert_from", "tls_retried", "tls_early_data_offered")


@scenario
class TlsHandshakes(Scenario):
    """Handshakes by Python's ssl, openssl and psql with nginx, openssl s_server and PostgreSQL."""

    name = "tls-handshakes"
    words = "nginx, openssl s_server, PostgreSQL with TLS 1.2 and 1.3; Python's ssl, openssl s_client, psql"
    hosts = addresses(client="10.68.0.10", web="10.68.0.20", db="10.68.0.30")
    needs = (
        NGINX_NEEDS,
        ("openssl", "openssl"),
        ("curl", "curl"),
        ("psql", "postgresql-client"),
        ("pgbench", "postgresql"),
        ("/usr/lib/postgresql/*/bin/postgres", "postgresql"),
    )

    def start(self, lab: Lab) -> None:
        names = ("-keyout", str(lab.folder / "tls.key"), "-out", str(lab.folder / "tls.crt"), "-subj", "/CN=web")
        lab.run("web", "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names)
        for host in ("client", "web"):
            lab.cut_to_mss(host, "eth0")
        start_nginx(lab, "web", NGINX.format(folder=lab.folder, address=lab.address("web")), port=ANY)
        own, place = f"-cert {lab.folder}/tls.crt -key {lab.folder}/tls.key", lab.address("web")
        early = f"sleep 600 | openssl s_server -accept {place}:{EARLY} -early_data -no_anti_replay -quiet {own}"
        lab.start("web", "sh", "-c", early, port=EARLY, name="early")
        with_key = (
            "openssl",
            "s_server",
            "-accept",
            f"{place}:{WITH_KEY}",
            "-psk",
            "0badcafe",
            "-nocert",
            "-quiet",
            "-rev",
        )
        lab.start("web", *with_key, port=WITH_KEY, name="with-key")
        lab.start("db", "python3", "-c", PROXY, lab.address("db"), place, port=3128, name="proxy")
        self.start_database(lab)

    def start_database(self, lab: Lab) -> None:
        """PostgreSQL with TLS, trusting everyone."""
        start_postgresql(lab, "db")
        for suffix in ("crt", "key"):
            own = lab.folder / "pg" / f"server.{suffix}"
            own.write_bytes((lab.folder / f"tls.{suffix}").read_bytes())
            own.chmod(0o600)
            lab.tool("db", "chown", "postgres", str(own))
        place = "host=127.0.0.1 user=postgres dbname=postgres"
        lab.run("db", "psql", place, "-c", "alter system set ssl = on", "-c", "select pg_reload_conf()")

    def traffic(self, lab: Lab) -> Truth:
        said = lab.run("client", "python3", "-c", PYTHON, lab.address("web"), "").splitlines()
        names = dict(_iana_names(lab))
        found = [_of_python(json.loads(line), lab.address("web"), names) for line in said]
        by_port = {one["client_port"]: one for one in found}
        for line in logs.split_by_tabs(lab.folder / "tls.log"):
            known = by_port.get(int(line[0]))
            if known is not None and "tls_alert" not in known:
                _compare_with_nginx(known, line)
        found += [*self.with_openssl(lab), *self.with_psql(lab), *self.through_proxy(lab)]
        return Truth(handshakes=found, only=("nothing",), lost=None)

    def with_openssl(self, lab: Lab) -> Iterator[dict[str, Any]]:
        """Early data, a key that both ends were given before, and sessions kept in files."""
        kept, web = str(lab.folder / "session.pem"), lab.address("web")
        lab.file("early.txt", "early\n")
        cases = (
            (EARLY, ("-sess_out", kept, "-servername", "early.example"), {"tls_server_name": "early.example"}),
            (
                EARLY,
                ("-sess_in", kept, "-early_data", str(lab.folder / "early.txt"), "-servername", "early.example"),
                {"tls_early_data_offered": True},
            ),
            (WITH_KEY, ("-psk", "0badcafe", "-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"), {}),
        )
        for port, words, known in cases:
            command = f"sleep 0.5 | openssl s_client -connect {web}:{port} {' '.join(words)} 2>&1"
            printed = lab.run("client", "sh", "-c", command, check=False)
            line = re.search(r"(New|Reused), (TLSv1\.\d), Cipher is (\S+)", printed)
            assert line is not None, printed[-600:]
            resumption = {"New": "full", "Reused": "psk"}[line[1]]
            yield {
                "server": f"{web}:{port}", "client_port": 0, "tls_version": line[2].removeprefix("TLSv"),
                "tls_cipher": line[3], "tls_resumption": resumption, "tls_alert": None, **known,
            }  # fmt: skip

    def with_psql(self, lab: Lab) -> Iterator[dict[str, Any]]:
        """TLS that begins behind PostgreSQL's SSLRequest."""
        query = "select inet_client_port(), version, cipher from pg_stat_ssl where pid = pg_backend_pid()"
        for _ in range(3):
            place = f"host={lab.address('db')} user=postgres dbname=postgres sslmode=require"
            port, version, cipher = lab.run("client", "psql", place, "-AtF,", "-c", query).strip().split(",")
            yield {
                "server": f"{lab.address('db')}:{DATABASE}", "client_port": int(port), "tls_cipher": cipher,
                "tls_version": version.removeprefix("TLSv"), "tls_resumption": "full", "tls_alert": None,
            }  # fmt: skip

    def through_proxy(self, lab: Lab) -> Iterator[dict[str, Any]]:
        """TLS inside HTTP's CONNECT: seen on both connections of the proxy."""
        proxy, web = f"{lab.address('db')}:3128", f"{lab.address('web')}:{ANY}"
        for version in ("1.2", "1.3"):
            name = f"tunnel-{version.replace('.', '')}.example"
            form = (
                "-sk",
                "-o",
                "/dev/null",
                "-w",
                "%{local_port}",
                "--http1.1",
                f"--tlsv{version}",
                "--tls-max",
                version,
            )
            port = lab.run("client", "curl", *form, "-x", f"http://{proxy}", f"https://{name}/")
            line = next(line for line in logs.split_by_tabs(lab.folder / "tls.log") if line[4] == name)
            for server, client_port in ((proxy, port), (web, line[0])):
                yield {
                    "server": server, "client_port": int(client_port), "tls_version": line[2].removeprefix("TLSv"),
                    "tls_server_name": name, "tls_resumption": "full", "tls_alpn_offered": "http/1.1",
                    "tls_alert": None, "tls_alpn": None if version == "1.3" else line[5],
                }  # fmt: skip

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        rows = said.table("connections").sort("first_host_ns").to_dicts()
        found = []
        for column in COLUMNS:
            pairs = list(_pairs(truth, rows, column))
            wrong = [
                f"{row[column]} for {str(one[column])[:40]} ({one['server']})"
                for one, row in pairs
                if row[column] != one[column]
            ]
            found.append(
                Verdict(f"{column} of handshakes", str(len(pairs)), "; ".join(wrong[:3]) or str(len(pairs)), not wrong)
            )
        failed = sum(bool(one.get("tls_alert")) for one in truth.handshakes)
        counted = sum(row["count"] for row in said.findings if row["kind"] == "tls_handshake_failed")
        found.append(Verdict("failed handshakes (findings)", str(failed), str(counted), counted == failed))
        asked = [row for row in said.exchanges.to_dicts() if row["client_port"] in _failed_ports(truth)]
        found.append(Verdict("requests of failed handshakes", "0", str(len(asked)), not asked))
        return found


def _failed_ports(truth: Truth) -> set[int]:
    return {one["client_port"] for one in truth.handshakes if one.get("tls_alert")}


def _pairs(truth: Truth, rows: list[dict[str, Any]], column: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What is known of a column, and the connection's row: by the client's port, or else in order."""
    used = set()
    for one in truth.handshakes:
        same = [row for row in rows if f"{row['server_addr']}:{row['server_port']}" == one["server"]]
        if one["client_port"]:
            same = [row for row in same if row["client_port"] == one["client_port"]]
        same = [row for row in same if row["connection_id"] not in used and row["tls_evidence"] is not None]
        row = same[0] if same else dict.fromkeys(COLUMNS)
        used.add(row.get("connection_id"))
        if column in one:
            yield one, row


def _of_python(said: dict[str, Any], web: str, names: dict[str, str]) -> dict[str, Any]:
    """What Python's ssl says, by columns."""
    found: dict[str, Any] = {
        "server": f"{web}:{said['server_port']}", "client_port": said["client_port"],
        "tls_server_name": said["sni"].lower() if said["sni"] else None,
        "tls_alpn_offered": said["alpn_offered"] or None,
        "tls_retried": said["server_port"] == RETRYING,
    }  # fmt: skip
    if "failed" in said:
        alert, sender = FAILURES.get(said["failed"], ("unknown_ca", "client"))
        return found | {"tls_alert": alert, "tls_alert_from": sender}
    is_13 = said["version"] == "1.3"
    return found | {
        "tls_version": said["version"], "tls_cipher": names.get(said["cipher"], said["cipher"]), "tls_alert": None,
        "tls_alpn": None if is_13 else said["alpn"],
        "tls_resumption": ("psk" if is_13 else "resumed") if said["resumed"] else "full",
    }  # fmt: skip


def _compare_with_nginx(known: dict[str, Any], line: list[str]) -> None:
    """Check that both ends agree, so that neither's word is taken wrongly."""
    _, _, version, reused, name, alpn = line
    assert version == f"TLSv{known['tls_version']}", (version, known)
    assert (reused == "r") == (known["tls_resumption"] != "full"), (reused, known)
    assert name in ("", "-", known["tls_server_name"]) or name.lower() == known["tls_server_name"], (name, known)
    assert known["tls_alpn"] in (None, alpn), (alpn, known)


def _iana_names(lab: Lab) -> Iterator[tuple[str, str]]:
    """IANA's name of each cipher suite by OpenSSL's."""
    for line in lab.run("client", "openssl", "ciphers", "-stdname", "ALL").splitlines():
        iana, _, own = line.split()[:3]
        yield own, iana
