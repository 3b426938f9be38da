"""Secrets planted in each place where clients and servers put one, each its own, and captures that hold them."""

import re
import struct
from dataclasses import dataclass
from pathlib import Path

from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from testkit import capture_files
from tests.helpers import mongodb_messages as mongodb

HEADERS = (
    *("Authorization", "authorization", "Proxy-Authorization", "X-Auth-Token", "x-auth-token", "X-AUTH-TOKEN"),
    *("X-Storage-Token", "X-Auth-Key", "X-Storage-Pass", "X-Subject-Token", "X-Service-Token", "X-Session-Id"),
    *("X-Amz-Security-Token", "X-Account-Meta-Temp-URL-Key", "X-Container-Meta-Temp-Url-Key-2", "X-Container-Sync-Key"),
    *("Cookie", "Set-Cookie", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "X-Jwt", "X-Csrf-Token", "X-Xsrf-Token"),
    *("X-Vault-Token", "X-Consul-Token", "X-Gitlab-Token", "Private-Token", "Job-Token", "X-Otp", "X-Password"),
    *("X-Client-Secret", "X-Hub-Signature-256", "Sec-WebSocket-Protocol", "X-Forwarded-Client-Cert", "Mcp-Session-Id"),
    *("Authentication-Ticket", "X-Sid", "X-Access-Token", "X-Refresh-Token", "X-Id-Token", "Php-Auth-Pw"),
)
PARAMETERS = (
    *("Signature", "X-Amz-Signature", "X-Amz-Security-Token", "X-Amz-Credential", "temp_url_sig", "AWSAccessKeyId"),
    *("sig", "access_token", "api_key", "apikey", "key", "pass", "pwd", "password", "passwd", "jwt", "code", "session"),
    *("sid", "ticket", "otp", "SAMLResponse", "SAMLRequest", "sessionid", "PHPSESSID", "token", "id_token", "auth"),
    *("client_secret", "refresh_token", "state", "hmac", "userPass", "X%2DAmz%2DSignature", "sIGNATURE"),
)
CLIENT, SERVER = ("10.9.0.1", 40_000), ("10.9.0.2", 8080)
MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
START_NS, ONE_WAY_NS = 1_790_000_000_000_000_000, 50_000
HALF = re.compile(rb"[CHTZ]q\d{3}W|k7\d{3}Jv")
"""Half of any secret; one ends with no letter that another begins with, so a search in one pass finds each."""


@dataclass(frozen=True, slots=True)
class Place:
    """One secret: where it is, and the request and response that hold it."""

    name: str
    secret: str
    request: bytes
    response: bytes


def places() -> list[Place]:
    """All places."""
    requests = [(f"header {name}{colon!r}", _request(header=f"{name}{colon}SECRET")) for name, colon in _header_forms()]
    requests += [(f"parameter {name}", _request(f"/c/o?{form.format(name)}")) for name, form in _parameter_forms()]
    requests += [(f"path {path}", _request(path)) for path in _paths()]
    requests += [(f"within {header}", _request(header=header)) for header in _urls_in_headers()]
    responses = [(f"answer {name}", _request(), f"{name}: SECRET") for name in HEADERS]
    found = [_place(name, request, "") for name, request in requests]
    found += [_place(name, request, answer) for name, request, answer in responses]
    return [_with_number(place, number) for number, place in enumerate(found)]


def http2_places() -> list[Place]:
    """Places in HTTP/2: header blocks of requests and answers with literal fields (RFC 7541 §6.2.2), and bodies."""
    settings, ok = _frame(4, 0, 0, b""), _frame(1, 5, 1, b"\x88")
    fields = [(f"HTTP/2 header {name}", _block(name.lower(), b"SECRET" + b"." * 7)) for name in HEADERS]
    fields += [(f"HTTP/2 path {path}", _block(":path", path.replace("SECRET", "SECRET" + "." * 7).encode()))
               for path in ("/v2.0/tokens/SECRET", *(f"/c/o?{name}=SECRET" for name in PARAMETERS))]  # fmt: skip
    requests = [(name, _frame(1, 5, 1, block), settings + ok) for name, block in fields]
    split = _block("x-auth-token", b"SECRET" + b"." * 7)
    requests.append(("HTTP/2 continuation", _frame(1, 1, 1, b"\x83") + _frame(9, 4, 1, split), settings + ok))
    body = b"a=b&password=SECRET" + b"." * 7
    requests.append(("HTTP/2 form", _frame(1, 4, 1, b"\x83") + _frame(0, 1, 1, body), settings + ok))
    requests += [
        (
            f"HTTP/2 answer {name}",
            _frame(1, 5, 1, b"\x82"),
            settings + _frame(1, 5, 1, b"\x88" + _block(name, b"SECRET" + b"." * 7)),
        )
        for name in ("set-cookie", "x-subject-token")
    ]
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings
    found = []
    for number, (name, request, response) in enumerate(requests):
        secret = f"Hq{number:03d}Wk7{number:03d}Jv"
        texts = [text.replace(b"SECRET.......", secret.encode()) for text in (preface + request, response)]
        assert secret.encode() in b"".join(texts)
        found.append(Place(name, secret, *texts))
    return found


def postgresql_places() -> list[Place]:
    """Places in PostgreSQL's messages: passwords, literals, comments, parameters, rows, texts of errors."""
    texts = (
        "'SECRET'",
        "E'\\'SECRET'",
        "$q$SECRET$q$",
        "U&'SECRET'",
        "'a''SECRET'",
        "'SECRET",
        "'\\' AND b = 'SECRET'",
    )
    statements = [f"SELECT a FROM t WHERE b = {text}" for text in texts]
    statements += ["ALTER ROLE r PASSWORD 'SECRET'", "SELECT 1 /* SECRET */", "SELECT 1 -- SECRET"]
    sync, ready, query = _message("S", b""), _message("Z", b"I"), _message("Q", b"SELECT 1\0")
    asked = [(f"PostgreSQL {text}", _message("Q", text.encode() + b"\0"), ready) for text in statements]
    asked += [
        (f"PostgreSQL, prepared, {text}", _message("P", b"s\0" + text.encode() + b"\0\0\0") + sync, ready)
        for text in statements
    ]
    parameter = b"\0s\0\0\0\0\x01" + (13).to_bytes(4, "big") + b"SECRET" + b"\0\0"
    asked += [
        ("PostgreSQL parameter", _message("B", parameter) + sync, ready),
        ("PostgreSQL password", query + _message("p", b"SECRET\0"), ready),
        ("PostgreSQL, copied in", query + _message("d", b"1\tSECRET\n"), ready),
    ]
    of_answers = [
        ("PostgreSQL row", query, _message("D", b"\0\x01\0\0\0\x0dSECRET") + ready),
        ("PostgreSQL error", query, _message("E", b"SERROR\0VERROR\0C22P02\0Mno number: SECRET\0\0") + ready),
        ("PostgreSQL notification", query, _message("A", b"\0\0\0\x01jobs\0SECRET\0") + ready),
    ]
    found = []
    for number, (name, request, answer) in enumerate([*asked, *of_answers]):
        secret = f"Zq{number:03d}Wk7{number:03d}Jv"
        found.append(Place(name, secret, *(_with_secret(text, secret.encode()) for text in (request, answer))))
    return found


def tls_places() -> list[Place]:
    """Places in a TLS handshake that name a session or a key, or hold one; each client asks for `kept.example`."""
    secret, name = b"SECRET.......", (0, b"\0\x0f\0\0\x0ckept.example")
    padded = secret.ljust(32, b"-")
    in_client = {
        "random number": _client_hello([name], random=padded),
        "session id": _client_hello([name], session=padded),
        "cipher suites": _client_hello([name], suites=secret + b"-"),
        **{
            f"extension {kind}": _client_hello([(kind, b"\0\x0d" + secret), name, (43, b"\x04\x03\x04\x03\x03")])
            for kind in (10, 13, 21, 35, 41, 44, 45, 51, 0xFE0D, 0xFF01, 0x1A1A)
        },
        "last extension": _client_hello([name, (41, b"\0\x0d" + secret)]),
    }
    hello, answer = _client_hello([name]), _server_hello([(51, b"\0\x1d\0\x04keys"), (43, b"\3\4")])
    places = [(f"TLS client's {where}", _record(22, message), answer) for where, message in in_client.items()]
    cut = in_client["extension 51"]
    places.append(("TLS hello in two records", _record(22, cut[:90]) + _record(22, cut[90:]), answer))
    places.append(("TLS early data", _record(22, hello) + _record(23, secret), answer))
    of_server = {
        "session id": _server_hello([(43, b"\3\4")], session=padded),
        "key share": _server_hello([(51, b"\0\x1d\0\x0d" + secret), (43, b"\3\4")]),
        "certificate": answer + _record(22, b"\x0b\0\0\x10" + padded),
        "ticket": answer + _record(22, b"\x04\0\0\x10" + padded),
        "answer": answer + _record(23, secret),
    }
    places += [(f"TLS server's {where}", _record(22, hello), text) for where, text in of_server.items()]
    found = []
    for number, (where, request, text) in enumerate(places):
        planted = f"Tq{number:03d}Wk7{number:03d}Jv"
        found.append(Place(where, planted, *(one.replace(secret, planted.encode()) for one in (request, text))))
    return found


def _record(kind: int, content: bytes) -> bytes:
    return bytes([kind, 3, 3]) + len(content).to_bytes(2, "big") + content


def _hello(kind: int, fields: bytes, extensions: list[tuple[int, bytes]]) -> bytes:
    each = b"".join(of.to_bytes(2, "big") + len(body).to_bytes(2, "big") + body for of, body in extensions)
    body = fields + len(each).to_bytes(2, "big") + each
    return bytes([kind]) + len(body).to_bytes(3, "big") + body


def _client_hello(
    extensions: list[tuple[int, bytes]],
    random: bytes = b"r" * 32,
    session: bytes = b"s" * 32,
    suites: bytes = b"\x13\x01",
) -> bytes:
    fields = b"\3\3" + random + bytes([len(session)]) + session + len(suites).to_bytes(2, "big") + suites + b"\1\0"
    return _hello(1, fields, extensions)


def _server_hello(extensions: list[tuple[int, bytes]], session: bytes = b"s" * 32) -> bytes:
    fields = b"\3\3" + b"r" * 32 + bytes([len(session)]) + session + b"\x13\x01\0"
    return _record(22, _hello(2, fields, extensions))


def mysql_places() -> list[Place]:
    """Places in MySQL's packets: users, passwords, literals, comments, parameters, rows, texts of errors."""
    texts = ("'SECRET'", "'it\\'SECRET'", '"SECRET"', "'a''SECRET'", "'SECRET", "_utf8'SECRET'", "N'SECRET'")
    statements = [f"SELECT a FROM t WHERE b = {text}" for text in texts]
    statements += ["SET PASSWORD = 'SECRET'", "SELECT 1 /* SECRET */", "SELECT 1 # SECRET", "SELECT 1 -- SECRET"]
    ok, query = _packet(1, b"\0\0\0\x02\0\0\0"), _packet(0, b"\x03SELECT 1")
    login = (0x3FA205).to_bytes(4, "little") + b"\0\0\0\x40\x2d" + b"\0" * 23
    asked = [(f"MySQL {text}", _packet(0, b"\x03" + text.encode()), ok) for text in statements]
    asked += [(f"MySQL, prepared, {text}", _packet(0, b"\x16" + text.encode()), ok) for text in statements]
    asked += [
        ("MySQL user", _packet(1, login + b"SECRET\0\0"), _packet(2, b"\0\0\0\x02\0\0\0")),
        ("MySQL password", _packet(1, login + b"user\0\x14SECRET\0\0"), _packet(2, b"\0\0\0\x02\0\0\0")),
        ("MySQL parameter", _packet(0, b"\x17\x09\0\0\0\0\x01\0\0\0\0\x01\xfe\0\x0dSECRET"), ok),
    ]
    rows = _packet(1, b"\x01") + _packet(2, b"\x03def\0\0\0\x01a\0\x0c\x3f\0\x01\0\0\0\xfd\0\0\0\0\0")
    end = b"\xfe\0\0\x02\0"
    asked += [
        ("MySQL row", query, rows + _packet(3, end) + _packet(4, b"\x0dSECRET") + _packet(5, end)),
        ("MySQL error", query, _packet(1, b"\xff\x7a\x04#42S02no SECRET")),
    ]
    found = []
    for number, (name, request, answer) in enumerate(asked):
        secret = f"Zq{number:03d}Wk7{number:03d}Jv"
        found.append(Place(name, secret, *(_with_secret(text, secret.encode()) for text in (request, answer))))
    return found


def _packet(number: int, body: bytes) -> bytes:
    """A packet of MySQL; its length is that with a secret in it."""
    return (len(body) + 7 * body.count(b"SECRET")).to_bytes(3, "little") + bytes([number]) + body


def redis_places() -> list[Place]:
    """Places in Redis' commands and answers: passwords, values, scripts, errors, and ids in keys."""
    words: list[tuple[str | bytes, ...]] = [
        ("AUTH", "SECRET"), ("AUTH", "user", "SECRET"), ("HELLO", "3", "AUTH", "user", "SECRET"),
        ("CONFIG", "SET", "requirepass", "SECRET"), ("ACL", "SETUSER", "bob", "on", ">SECRET"),
        ("MIGRATE", "h", "6379", "k", "0", "9", "AUTH", "SECRET"), ("SET", "user:7", "SECRET"),
        ("MSET", "a", "1", "b", "SECRET"), ("HSET", "user:7", "SECRET", "SECRET"), ("GET", "session:SECRET"),
        ("EVAL", "return 'SECRET'", "0", "SECRET"), ("PUBLISH", "news", "SECRET"), ("SECRET", "x"),
        ("CONFIG", "SECRET"), ("XADD", "events", "*", "field", "SECRET"),
    ]  # fmt: skip
    ping = _command("PING")
    asked = [(f"Redis {' '.join(map(str, each))}", ping + _command(*each), b"+PONG\r\n+OK\r\n") for each in words]
    size = b"$%d\r\n" % 13
    answers = [size + b"SECRET\r\n", b"*2\r\n:1\r\n" + size + b"SECRET\r\n", b"+SECRET\r\n", b"-ERR SECRET\r\n"]
    asked += [(f"Redis answer {answer!r}", _command("GET", "k"), answer) for answer in answers]
    return _with_secrets(asked)


def memcached_places() -> list[Place]:
    """The same of memcached, whose first `set` may be a password."""
    data = b" 0 0 13\r\nSECRET\r\n"
    requests = [
        b"set auth" + data, b"set k 0 0 13 noreply\r\nSECRET\r\nget k\r\n", b"get session:SECRET\r\n",
        b"ms k 13 T60\r\nSECRET\r\n", b"mg k v OSECRET\r\n",
    ]  # fmt: skip
    found = [(f"memcached {request!r}", request, b"STORED\r\n") for request in requests]
    answers = [b"VALUE k 0 13\r\nSECRET\r\nEND\r\n", b"VA 13\r\nSECRET\r\n", b"SERVER_ERROR SECRET\r\n"]
    return _with_secrets(found + [(f"memcached answer {answer!r}", b"get k\r\n", answer) for answer in answers])


def kafka_places() -> list[Place]:
    """Places in Kafka's messages: passwords, records, settings, texts of errors."""
    hello, records = _kafka_request(18, 3, 1, b"\0"), b"\0\0\0\1\0\0\x75\x30\2\7orders\2\0\0\0\0" + b"SECRET"
    requests = [
        ("password", _kafka_request(36, 2, 2, b"\0\x10\0user\0SECRET\0")),
        ("record", _kafka_request(0, 9, 2, records)),
        ("setting", _kafka_request(44, 1, 2, b"\0\2\2\x06topic\2\x10ssl.password\0\x0eSECRET\0\0\0\0")),
    ]
    both = _sized_message(b"\0\0\0\1" + bytes(30)) + _sized_message(b"\0\0\0\2" + bytes(9))
    asked = [(f"Kafka {name}", hello + request, both) for name, request in requests]
    error = _sized_message(b"\0\0\0\1" + bytes(30)) + _sized_message(b"\0\0\0\2\0\x23SECRET")
    return _with_secrets([*asked, ("Kafka error", hello + _kafka_request(3, 12, 2, b"\0"), error)])


def _kafka_request(kind: int, version: int, number: int, body: bytes) -> bytes:
    return _sized_message(struct.pack("!HHIH", kind, version, number, 4) + b"shop" + body)


def _sized_message(body: bytes) -> bytes:
    """A message with its length before it; that is the length with a secret in it."""
    return struct.pack("!I", len(body) + 7 * body.count(b"SECRET")) + body


def zookeeper_places() -> list[Place]:
    """Places in ZooKeeper's messages: sessions' passwords, credentials, data."""
    key = struct.pack("!I", 16) + b"SECRETkey"
    opened = _sized_message(struct.pack("!iqiq", 0, 0, 10_000, 7) + key + b"\0")
    is_open = _sized_message(struct.pack("!iiq", 0, 10_000, 7) + key + b"\0")
    harmless = struct.pack("!I", 16) + b"k" * 16
    hello = _sized_message(struct.pack("!iqiq", 0, 0, 10_000, 7) + harmless + b"\0")
    ready = _sized_message(struct.pack("!iiq", 0, 10_000, 7) + harmless + b"\0")
    done = _sized_message(struct.pack("!iqi", 5, 9, 0))
    login = _sized_message(struct.pack("!iii", 5, 100, 0) + b"\0\0\0\6digest\0\0\0\x13alice:SECRET")
    data = _sized_message(struct.pack("!iiI", 5, 5, 4) + b"/app\0\0\0\x0dSECRET\0\0\0\0")
    found = _sized_message(struct.pack("!iqiI", 5, 9, 0, 13) + b"SECRET")
    ask = _sized_message(struct.pack("!iiI", 5, 4, 4) + b"/app\0")
    return _with_secrets(
        [
            ("ZooKeeper session, client's", opened, ready),
            ("ZooKeeper session, server's", hello, is_open),
            ("ZooKeeper login", hello + login, ready + done),
            ("ZooKeeper data, client's", hello + data, ready + done),
            ("ZooKeeper data, server's", hello + ask, ready + found),
        ]
    )


def websocket_places() -> list[Place]:
    """Places in WebSocket messages: texts, binaries, fragments, pings, reasons of closes; of a client with a key of
    zeros, so that masked bytes are the secret's own."""
    asked = b"GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    switched = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    kinds = {0x81: "text", 0x82: "binary", 0xC1: "compressed", 0x89: "ping", 0x8A: "pong", 0x88: "close"}
    ping, found = _message_frame(0x89, b"", masked=True), []
    for first, name in kinds.items():
        body = b"\x03\xe8SECRET" if name == "close" else b"SECRET"
        found += [
            (f"WebSocket, client's {name}", _message_frame(first, body, masked=True), b""),
            (f"WebSocket, two, {name}", ping + _message_frame(first, body, masked=True), b""),
            (f"WebSocket, server's {name}", asked, switched + _message_frame(first, body, masked=False)),
        ]
    long = b"SECRET".ljust(300, b".")
    fragments = _message_frame(0x01, b"SECRET", masked=False) + _message_frame(0x80, b"SECRET", masked=False)
    found += [
        ("WebSocket, long", _message_frame(0x82, long, masked=True), b""),
        ("WebSocket, fragments", asked, switched + fragments),
    ]
    return _with_secrets(found)


def _message_frame(first: int, body: bytes, *, masked: bool) -> bytes:
    """A frame of a WebSocket; its length is that with a secret in it."""
    length, mask = len(body) + 7 * body.count(b"SECRET"), 0x80 if masked else 0
    size = bytes([length | mask]) if length < 126 else bytes([126 | mask]) + length.to_bytes(2, "big")
    return bytes([first]) + size + (bytes(4) if masked else b"") + body


def _command(*words: str | bytes) -> bytes:
    """A command of Redis; lengths are those with secrets in it."""
    texts = [word if isinstance(word, bytes) else word.encode() for word in words]
    each = [b"$%d\r\n%s\r\n" % (len(text) + 7 * text.count(b"SECRET"), text) for text in texts]
    return b"*%d\r\n" % len(words) + b"".join(each)


def _with_secrets(said: list[tuple[str, bytes, bytes]]) -> list[Place]:
    secrets = [f"Zq{number:03d}Wk7{number:03d}Jv" for number in range(len(said))]
    return [
        Place(name, secret, *(_with_secret(text, secret.encode()) for text in (request, answer)))
        for (name, request, answer), secret in zip(said, secrets, strict=True)
    ]


def _message(kind: str, body: bytes) -> bytes:
    """A message of PostgreSQL; its length is that with a secret in it."""
    more = 7 * body.count(b"SECRET")  # a secret is so much longer
    return kind.encode() + (4 + len(body) + more).to_bytes(4, "big") + body


def _with_secret(text: bytes, secret: bytes) -> bytes:
    return text.replace(b"SECRET", secret)


def ceph_places() -> list[Place]:
    """Places in Ceph's messenger: authentication, commands and their answers, settings, and names of objects."""
    secret, operation = b"SECRET" + b".......", _ceph_operation(b"o")
    banner = b"ceph v2\n\x10\0" + bytes([1]) + bytes(15)
    reply = banner + _ceph_message(43, 8, struct.pack("<I", 1) + b"o\1" + bytes(16 + 8 + 4))
    words = b'{"prefix": "auth add", "entity": "client.a", "key": "' + secret + b'"}'
    command = bytes(34) + struct.pack("<II", 1, len(words)) + words
    controls = {2: "request", 4: "reply more", 5: "request more", 6: "done", 7: "signature"}
    asked = [(f"authentication {name}", _ceph_frame(tag, bytes(12) + secret)) for tag, name in controls.items()]
    asked.append(("ticket", _ceph_message(17, 1, bytes(18) + secret)))
    answered = [("key", 51, b"", b"[client.a] key = " + secret), ("setting", 62, secret, b""), ("log", 52, secret, b"")]
    requests = [(name, banner + frame + operation, reply) for name, frame in asked]
    requests.append(("command", banner + _ceph_message(50, 1, command), banner + _ceph_message(51, 1, bytes(22))))
    requests += [
        (name, banner + operation, reply + _ceph_message(kind, 1, bytes(22) + front, data))
        for name, kind, front, data in answered
    ]
    requests += [
        (f"object named by {name}", banner + _ceph_operation(f"o?{name}=".encode() + secret), reply)
        for name in PARAMETERS
    ]
    found = []
    for number, (name, *texts) in enumerate(requests):
        planted = f"Cq{number:03d}Wk7{number:03d}Jv"
        assert secret in b"".join(texts)
        found.append(Place(f"Ceph {name}", planted, *(text.replace(secret, planted.encode()) for text in texts)))
    return found


def mongodb_places() -> list[Place]:
    """Places in MongoDB's messages that prove who asks, set a password, or name a collection."""
    secret, ok, database = "SECRET" + "." * 7, {"ok": 1.0}, {"$db": "shop"}
    asked: list[tuple[str, bytes, bytes]] = [
        (name, mongodb.msg({name: 1, "payload": secret.encode(), "key": secret, "$db": "admin"}), mongodb.msg(ok, 2, 1))
        for name in ("saslStart", "saslContinue", "authenticate", "copydbsaslstart")
    ]
    asked += [
        (name, mongodb.msg({name: "bob", "pwd": secret, "$db": "admin"}), mongodb.msg(ok, 2, 1))
        for name in ("createUser", "updateUser")
    ]
    proof = {"speculativeAuthenticate": {"saslStart": 1, "payload": secret.encode()}}
    ping = mongodb.msg({"ping": 1, "$db": "admin"})
    asked += [
        ("hello", mongodb.msg({"hello": 1} | proof | {"$db": "admin"}), mongodb.msg(ok, 2, 1)),
        ("old hello", mongodb.query({"isMaster": 1} | proof), mongodb.reply({"ismaster": True} | ok)),
        ("answer to hello", ping, mongodb.msg({"ismaster": True} | proof | ok, 2, 1)),
        ("answer to an old hello", mongodb.query({"isMaster": 1}), mongodb.reply({"ismaster": True} | proof | ok)),
        ("answer to saslStart", ping, mongodb.msg({"done": False, "payload": secret.encode()} | ok, 2, 1)),
        ("answer to getnonce", ping, mongodb.msg({"nonce": secret} | ok, 2, 1)),
    ]
    asked += [
        (
            f"collection named by {name}",
            mongodb.msg({"find": f"o?{name}={secret}"} | database),
            mongodb.msg(ok, 2, 1),
        )
        for name in PARAMETERS
    ]
    return _mongodb_places(asked)


def mongodb_documents() -> list[Place]:
    """Places in MongoDB's messages where documents and conditions are, and what names users."""
    secret, ok = "SECRET" + "." * 7, mongodb.msg({"n": 1, "ok": 1.0}, 2, 1)
    own = {"name": secret}
    commands: dict[str, dict[str, mongodb.Value]] = {
        "filter": {"find": "orders", "filter": own},
        "array": {"insert": "orders", "documents": [own, own]},
        "pipeline": {"aggregate": "orders", "pipeline": [{"$match": own}], "cursor": {}},
        "comment": {"ping": 1, "comment": secret},
        "user": {"usersInfo": secret},
        "value": {"distinct": "orders", "key": "name", "query": own},
        "unknown command": {f"{secret} no name": 1},
        "log": {"logMessage": secret},
    }
    asked = [(name, mongodb.msg(command | {"$db": "shop"}), ok) for name, command in commands.items()]
    asked.append(("sequence", mongodb.msg({"insert": "orders", "$db": "shop"}, documents=[own, own]), ok))
    find = mongodb.msg({"find": "orders", "$db": "shop"})
    answers: dict[str, dict[str, mongodb.Value]] = {
        "document": {"cursor": {"firstBatch": [own], "id": 0, "ns": "shop.orders"}, "ok": 1.0},
        "error": {"ok": 0.0, "errmsg": f"duplicate {secret}", "code": 11000, "codeName": "DuplicateKey"},
        "write error": {"n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": secret}], "ok": 1.0},
        "values": {"values": [secret], "ok": 1.0},
    }
    asked += [(name, find, mongodb.msg(answer, 2, 1)) for name, answer in answers.items()]
    return _mongodb_places(asked)


def _mongodb_places(asked: list[tuple[str, bytes, bytes]]) -> list[Place]:
    found = []
    for number, (name, *texts) in enumerate(asked):
        planted, secret = f"Cq{number:03d}Wk7{number:03d}Jv", b"SECRET" + b"." * 7
        assert secret in b"".join(texts)
        found.append(Place(f"MongoDB {name}", planted, *(text.replace(secret, planted.encode()) for text in texts)))
    return found


def _ceph_operation(name: bytes) -> bytes:
    """A message that writes an object of this name."""
    front = b"\1\1" + struct.pack("<I", 18) + bytes(18 + 12)
    front += b"\2\2" + struct.pack("<I", 21) + bytes(21 + 24 + 4 + 8)
    front += b"\6\3" + struct.pack("<IQiIIq", 28, 3, -1, 0, 0, -1)
    front += struct.pack("<I", len(name)) + name
    front += struct.pack("<HHI", 1, 0x2202, 0) + bytes(28) + struct.pack("<I", 4)
    return _ceph_message(42, 8, front, b"data")


def _ceph_message(kind: int, version: int, front: bytes, data: bytes = b"") -> bytes:
    header = struct.pack("<QQHHH", 1, 7, kind, 127, version).ljust(41, b"\0")
    return _ceph_frame(17, header, front, b"", data)


def _ceph_frame(tag: int, *segments: bytes) -> bytes:
    preamble = bytes([tag, len(segments)])
    preamble += b"".join(struct.pack("<IH", len(one), 8) for one in segments).ljust(24, b"\0") + bytes(2)
    epilogue = bytes(13) if len(segments) > 1 else b""
    crc = struct.pack("<I", _crc32c(preamble))
    return preamble + crc + segments[0] + bytes(4) + b"".join(segments[1:]) + epilogue


def _crc32c(data: bytes) -> int:
    """As Ceph has it for preambles: from 0, without inversions."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def _block(name: str, value: bytes) -> bytes:
    """A field with a new name, never indexed."""
    return b"\x10" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value


def write_captures(folder: Path, planted: list[Place]) -> list[Path]:
    """Captures of both hosts as tcpdump writes them, a connection for each place."""
    sent = [packet for number, place in enumerate(planted) for packet in _conversation(place, number)]
    files = []
    for name, is_client in (("client", True), ("server", False)):
        packets = [(at + (0 if from_client == is_client else ONE_WAY_NS), data) for at, from_client, data in sent]
        files.append(folder / f"{name}.pcap")
        files[-1].write_bytes(capture_files.pcap(sorted(packets, key=lambda packet: packet[0])))
    return files


def found_in(text: str | bytes, planted: list[Place]) -> list[str]:
    """Names of the places whose secret, or half of it, a text holds."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    present = set(HALF.findall(data))
    return [place.name for place in planted for half in _halves(place.secret) if half in present]


def _halves(secret: str) -> tuple[bytes, bytes]:
    text, middle = secret.encode(), len(secret) // 2
    assert HALF.fullmatch(text, 0, middle)
    assert HALF.fullmatch(text, middle)
    return text[:middle], text[middle:]


def _header_forms() -> list[tuple[str, str]]:
    plain = [(name, ": ") for name in HEADERS]
    return plain + [(name, colon) for name in HEADERS[::4] for colon in (":", "\t: ", " \t:\t", ": Bearer ")]


def _parameter_forms() -> list[tuple[str, str]]:
    forms = ("{}=SECRET", "a=b&{}=SECRET&c=d")
    rare = (";{}=SECRET", "a=b;{}=SECRET", "to=http%3A%2F%2Fh%2F%3F{}%3DSECRET")
    plain = [(name, form) for name in PARAMETERS for form in forms]
    return plain + [(name, form) for name in PARAMETERS[::3] if "%" not in name for form in rare]


def _paths() -> list[str]:
    return [
        *("/v2.0/tokens/SECRET", "/v2.0/tokens/SECRET/endpoints", "/identity/v2.0/tokens/SECRET?belongsTo=a"),
        *("/app;jsessionid=SECRET", "/app;JSESSIONID=SECRET?a=b", "/a/b;v=1;jsessionid=SECRET/c"),
        *("http://user:SECRET@h/o", "/reset-password/SECRET"),
    ]


def _urls_in_headers() -> list[str]:
    return [
        "Referer: http://h/o?a=b&pass=SECRET",
        "Referer: http%3A%2F%2Fh%2Fo%3Fa%3Db%26Signature%3DSECRET",
        "Referer: http://u:SECRET@h/",
        "Referer: http://h/v2.0/tokens/SECRET",
        "X-Original-Url: /x?temp_url_sig=SECRET",
        "User-Agent: agent/1 (http://h/?token=SECRET)",
        "User-Agent: http://u:SECRET@h/",
    ]


def _request(target: str = "/c/o", header: str = "X-Nothing: 0") -> str:
    return f"GET {target} HTTP/1.1\r\nHost: h\r\n{header}\r\nX-Trans-Id: txNUMBER\r\n\r\n"


def _place(name: str, request: str, answer: str) -> Place:
    lines = f"HTTP/1.1 200 OK\r\nX-Trans-Id: txNUMBER\r\n{answer or 'X-Nothing: 0'}\r\nContent-Length: 0\r\n\r\n"
    return Place(name, "", request.encode(), lines.encode())


def _with_number(place: Place, number: int) -> Place:
    secret = f"Zq{number:03d}Wk7{number:03d}Jv"
    filled = (text.replace(b"SECRET", secret.encode()) for text in (place.request, place.response))
    request, response = (text.replace(b"txNUMBER", b"tx%04d" % number) for text in filled)
    assert secret.encode() in request + response
    return Place(place.name, secret, request, response)


def _conversation(place: Place, number: int) -> list[tuple[int, bool, bytes]]:
    """Each packet of a place's connection: when it is sent (ns), whether by the client, and its bytes."""
    seq = {True: 1_000, False: 9_000}
    lines = [(True, "S", b""), (False, "SA", b""), (True, "A", b"")]
    lines += [(True, "PA", place.request), (False, "PA", place.response), (True, "FA", b""), (False, "FA", b"")]
    packets = []
    for step, (from_client, flags, data) in enumerate(lines):
        client = (CLIENT[0], CLIENT[1] + number)
        (source, sport), (target, dport) = (client, SERVER) if from_client else (SERVER, client)
        ack = seq[not from_client] if "A" in flags else 0
        tcp = TCP(sport=sport, dport=dport, seq=seq[from_client], ack=ack, flags=flags, window=64_000)
        packet = Ether(src=MACS[0], dst=MACS[1]) / IP(src=source, dst=target, id=step + 1) / tcp / data
        packets.append((START_NS + number * 10_000_000 + step * 120_000, from_client, bytes(packet)))
        seq[from_client] += len(data) + ("S" in flags) + ("F" in flags)
    return packets
