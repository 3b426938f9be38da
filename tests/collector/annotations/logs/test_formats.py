"""Lines as servers write them, each with what is read of it."""

import random

import pytest

from collector.annotations.logs import haproxy, json_lines, nginx, postgresql, swift
from collector.annotations.logs.origin import Origin
from collector.annotations.logs.reading import PARSERS
from collector.annotations.logs.stamps import NO_YEAR, NO_ZONE, Calendar, of_number, parse_zone
from collector.annotations.records import Address, Phase, Record
from tracer.errors import InputError
from tracer.secret_rules import without_secrets

SECOND, MS = 10**9, 10**6
AT = 1_795_849_310 * SECOND
"""2026-11-28 07:01:50 UTC."""
COMBINED = '10.91.0.11 - - [28/Nov/2026:07:01:50 +0000] "GET /app/b?uid=1 HTTP/1.1" 200 300 "-" "curl/8"'
STORAGE = (
    "Nov 28 07:01:50 storage1 object-server: 10.0.0.2 - - [28/Nov/2026:07:01:50 +0000] "
    '"PUT /d1/7/AUTH_test/c/o" 201 - "PUT http://10.0.0.1/v1/AUTH_test/c/o" "txc878a9e1447c415eb4a1b-006afffc99" '
    '"proxy-server 31629" 0.0123 "-" 31700 0'
)
PROXY = (
    "proxy-server: 10.0.0.9 10.0.0.9 28/Nov/2026/07/01/50 PUT /v1/AUTH_test/c HTTP/1.0 201 - swiftclient-4.1 "
    "AUTH_tk0123456789ab... - - - txc878a9e1447c415eb4a1b-006afffc99 - 0.0613 - - 1795849310.100000000 "
    "1795849310.161300000 0"
)
HAPROXY = (
    "<134>Nov 28 07:01:50 haproxy[17132]: 10.91.0.10:60626 [28/Nov/2026:07:01:50.760] www web/web1 1/2/3/12/19 200 "
    '402 - - ---- 4/4/3/1/0 0/0 {txc878a9e1447c415eb4a1b-006afffc99} "GET /app/b?uid=1 HTTP/1.1"'
)
POSTGRESQL = (
    "2026-11-28 07:01:50.500 UTC [17593] 10.91.0.10(52018) app@shop LOG:  "
    "duration: 2.459 ms  statement: SELECT count(*) FROM orders WHERE name = 'Zuse'"
)


def origin(zone: str | None = None) -> Origin:
    return Origin("a.log", "web", Calendar(None if zone is None else parse_zone(zone), AT))


def read(line: str, zone: str | None = None) -> Record:
    return next(record for parse in PARSERS if (record := parse(line, origin(zone))))


def end_of(record: Record) -> int:
    return record.begin_host_ns + record.duration_ns


def test_nginx_combined_is_stamped_in_the_middle_of_its_second() -> None:
    record = read(COMBINED)
    assert (record.format, record.begin_host_ns, record.uncertainty_ns) == ("nginx", AT + SECOND // 2, SECOND // 2)
    assert (record.method, record.target, record.status) == ("GET", "/app/b?uid=1", 200)
    assert (record.client, record.duration_ns, record.phases) == (Address("10.91.0.11"), 0, ())
    assert (record.is_request, record.severity, record.name) == (True, "info", "GET /app/b?uid=1 HTTP/1.1 200")


@pytest.mark.parametrize(
    ("more", "duration_ms", "phases"),
    [
        (' rt=0.012 uct="0.001" urt="0.012"', 12, {"upstream_connect": 1, "upstream": 12}),
        (' rt=0.012 uht="0.007"', 12, {"upstream_header": 7}),
        (" 0.012 0.011", 12, {"upstream": 11}),
        (" 0.012 0.013", 12, {}),
        (' request_time=0.012 upstream_response_time="0.002, 0.004"', 12, {"upstream": 6}),
        (' "10.1.1.1" 0.012', 12, {}),
        (' rt=0.012 urt="-"', 12, {}),
        (' "-"', 0, {}),
    ],
)  # fmt: skip
def test_what_is_appended_to_nginx_lines_is_read(more: str, duration_ms: int, phases: dict[str, int]) -> None:
    record = read(COMBINED + more)
    assert (record.duration_ns, end_of(record)) == (duration_ms * MS, AT + SECOND // 2)
    assert {phase.name: phase.duration_ns // MS for phase in record.phases} == phases
    assert (record.duration_uncertainty_ns > 0) == (duration_ms > 0)


def test_nginx_s_finer_stamp_port_and_id_are_used() -> None:
    record = read(COMBINED + " rt=0.012 port=35642 msec=1795849310.772 rid=3d2e3a637a35b83e25a3115cb3ebc7ba")
    assert (end_of(record), record.uncertainty_ns) == (AT + 772 * MS + MS // 2, MS // 2)
    assert record.client == Address("10.91.0.11", 35642)
    assert record.transaction_id == "3d2e3a637a35b83e25a3115cb3ebc7ba"
    of_another_second = read(COMBINED + " msec=1795849999.772")
    assert of_another_second.uncertainty_ns == SECOND // 2


def test_nginx_error_line_is_of_the_request_that_it_names() -> None:
    record = read(
        '2026/11/28 07:01:50 [error] 17077#17077: *6 open() "/srv/missing" failed (2: No such file or directory), '
        'client: 10.91.0.11, server: , request: "GET /missing HTTP/1.1", host: "10.91.0.11"',
        "+02:00",
    )
    assert (record.severity, record.is_request, record.target) == ("error", False, "/missing")
    assert record.begin_host_ns == AT - 7200 * SECOND + SECOND // 2
    assert record.name == 'open() "/srv/missing" failed (2: No such file or directory)'


def test_haproxy_begins_at_its_date_and_names_its_timers() -> None:
    record = read(HAPROXY)
    assert (record.begin_host_ns, record.duration_ns) == (AT + 760 * MS + MS // 2, 19 * MS)
    assert {phase.name: phase.duration_ns // MS for phase in record.phases} == {
        **{"request": 1, "queue": 2, "connect": 3, "response": 12}
    }
    assert (record.client, record.method, record.target) == (Address("10.91.0.10", 60626), "GET", "/app/b?uid=1")
    assert record.transaction_id == "txc878a9e1447c415eb4a1b-006afffc99"
    bare = read(HAPROXY.partition("]: ")[2].replace("1/2/3/12/19", "1/2/-1/-1/+19").replace(" 200 ", " 503 "))
    assert [phase.name for phase in bare.phases] == ["request", "queue"]
    assert (bare.duration_ns, bare.severity) == (19 * MS, "error")


def test_haproxy_s_tcp_line_is_of_a_connection() -> None:
    record = read("10.0.0.1:5000 [28/Nov/2026:07:01:50.760] pg pg/db1 0/1/900 4711 -- 1/1/1/1/0 0/0")
    assert (record.is_request, record.duration_ns, record.status) == (False, 900 * MS, 0)
    assert record.phases == (Phase("queue", 0), Phase("connect", MS))


def test_swift_s_proxy_gives_both_ends_exactly_and_no_token() -> None:
    record = read(PROXY)
    assert record.duration_ns == 61_300_000
    assert (end_of(record), record.uncertainty_ns) == (AT + 161_300_000, 0)
    assert (record.transaction_id, record.service) == ("txc878a9e1447c415eb4a1b-006afffc99", "proxy-server")
    assert (record.method, record.target, record.status) == ("PUT", "/v1/AUTH_test/c", 201)
    assert "AUTH_tk" not in record.text
    assert len(record.text) == len(PROXY)


def test_swift_s_storage_server_ends_within_its_second() -> None:
    record = read(STORAGE)
    assert (end_of(record), record.uncertainty_ns) == (AT + SECOND // 2, SECOND // 2)
    assert (record.duration_ns, record.duration_uncertainty_ns) == (12_300_000, 100_000)
    assert (record.service, record.target) == ("object-server", "/d1/7/AUTH_test/c/o")
    assert record.phases == (Phase("request_time", 12_300_000),)


def test_postgresql_ends_at_its_stamp_and_its_values_are_overwritten() -> None:
    record = read(POSTGRESQL)
    assert (end_of(record), record.duration_ns) == (AT + 500 * MS + MS // 2, 2_459_000)
    assert (record.client, record.is_request) == (Address("10.91.0.10", 52018), True)
    assert (record.method, record.target) == ("SELECT", "count(*) FROM orders WHERE name = 'xxxx'")
    assert record.phases == (Phase("statement", 2_459_000),)
    assert "Zuse" not in record.text + record.name


@pytest.mark.parametrize(
    ("line", "severity", "client"),
    [
        ('2026-11-28 07:01:50 CET [1] ERROR:  column "bad" does not exist', "error", None),
        ("2026-11-28 07:01:50.500 UTC [1] 10.0.0.5 FATAL:  no password", "error", Address("10.0.0.5")),
        ("1795849310.500 [1] LOG:  checkpoint starting: time", "info", None),
        ('2026-11-28 07:01:50.500 UTC,"app","shop",1,"10.0.0.5:4444",abc.1,1,"SELECT",2026-11-28 07:00:00 UTC,3/4,0,'
         'ERROR,42703,"column ""bad"" does not exist",,,,,,"SELECT bad",8,,"","client backend",,0',
         "error", Address("10.0.0.5", 4444)),
        ('{"timestamp":"2026-11-28 07:01:50.500 UTC","user":"app","pid":1,"remote_host":"10.0.0.5","remote_port":4444,'
         '"error_severity":"ERROR","message":"no","statement":"SELECT bad","backend_type":"client backend"}',
         "error", Address("10.0.0.5", 4444)),
    ],
)  # fmt: skip
def test_other_lines_of_postgresql(line: str, severity: str, client: Address | None) -> None:
    record = read(line)
    assert (record.format, record.severity, record.client) == ("postgresql", severity, client)
    assert not record.is_request


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"time":"2026-11-28T07:01:50.5Z","msg":"a","duration_ms":12.5}', (12_500_000, AT + 550 * MS)),
        ('{"ts":1795849310.5,"msg":"done","latency":"3.5ms"}', (3_500_000, AT + 550 * MS)),
        ('{"@timestamp":1795849310500,"message":"done","elapsed_us":7}', (7_000, AT + 500 * MS + MS // 2)),
        ('{"time":"2026-11-28T08:01:50.500+01:00","msg":"done","duration":5}', (0, AT + 500 * MS + MS // 2)),
        ('{"time_local":"28/Nov/2026:07:01:50 +0000","request":"GET / HTTP/1.1","status":"200","request_time":"0.012"}',
         (12_000_000, AT + SECOND // 2)),
    ],
)  # fmt: skip
def test_json_lines_by_their_keys(line: str, expected: tuple[int, int]) -> None:
    record = read(line)
    assert (record.format, record.duration_ns, end_of(record)) == ("json", *expected)


def test_a_json_line_s_request_client_ids_and_level() -> None:
    record = read(
        '{"time":"2026-11-28T07:01:50Z","level":"warn","remote_addr":"[2001:db8::1]:443","method":"get","path":"/x",'
        '"status":503,"request_id":"r1","traceId":"t1","logger":"app\\u001b[31m","span_id":"s1"}'
    )
    assert (record.client, record.method, record.status) == (Address("2001:db8::1", 443), "GET", 503)
    assert (record.transaction_id, record.trace_id, record.span_id) == ("r1", "t1", "s1")
    assert (record.severity, record.service, record.is_request) == ("error", "app\\x1b[31m", True)


@pytest.mark.parametrize(
    "line",
    ["hello", "{}", '{"msg":"no time"}', '{"time":"yesterday"}', "[1]", "{" * 5000, COMBINED.replace("Nov", "Xxx")],
)
def test_of_no_known_format(line: str) -> None:
    assert [parse(line, origin()) for parse in PARSERS] == [None] * len(PARSERS)


def test_a_stamp_without_a_zone_is_of_the_option_s_else_of_utc_and_counted() -> None:
    here = origin()
    assert haproxy.parse(HAPROXY, here) is not None
    assert here.calendar.assumed[NO_ZONE] >= 1
    berlin = origin("Europe/Berlin")
    record = haproxy.parse(HAPROXY, berlin)
    assert record is not None
    assert (record.begin_host_ns, NO_ZONE in berlin.calendar.assumed) == (
        AT + 760 * MS + MS // 2 - 3600 * SECOND,
        False,
    )
    with pytest.raises(InputError, match="no such zone"):
        parse_zone("Berlin/Europe")


@pytest.mark.parametrize(
    ("near", "year"), [(AT, 2026), (AT + 40 * 86_400 * SECOND, 2026), (AT - 340 * 86_400 * SECOND, 2025)]
)
def test_a_stamp_without_a_year_is_of_the_nearest(near: int, year: int) -> None:
    dates = Calendar(parse_zone("UTC"), near)
    stamp, whole = dates.stamp((0, 11, 28), "07:01:50"), dates.stamp((year, 11, 28), "07:01:50")
    assert (stamp, dates.assumed) == (whole, {NO_YEAR: 1})


@pytest.mark.parametrize(
    ("text", "at", "uncertainty"),
    [("1795849310", AT + SECOND // 2, SECOND // 2), ("1795849310123456789", AT + 123456789, 0), ("12", None, 0)],
)
def test_a_number_s_unit_is_seen_by_its_size(text: str, at: int | None, uncertainty: int) -> None:
    found = of_number(text)
    assert (found and (found.at_ns, found.uncertainty_ns)) == (at and (at, uncertainty))


def test_no_line_whatever_is_in_it_raises_or_is_kept_unbounded() -> None:
    """Random bytes, and real lines with random changes: a record, whose texts are bounded and printable, or none."""
    chance, lines = random.Random(7), (COMBINED, STORAGE, PROXY, HAPROXY, POSTGRESQL)
    for _ in range(3_000):
        letters = list(chance.choice(lines))
        for _ in range(chance.randrange(1, 12)):
            letters[chance.randrange(len(letters))] = chr(
                chance.choice((chance.randrange(32, 127), 0, 27, 0x2028, 0xDC80))
            )
        line = without_secrets("".join(letters).encode("utf-8", "backslashreplace").decode())
        for parse in PARSERS:
            record = parse(line, origin())
            if record is not None:
                assert all(text.isprintable() for text in (record.name, record.text, record.target))
                assert len(record.text) <= 4_096 * 4
                assert abs(record.begin_host_ns) < 1 << 62


def test_each_format_is_of_a_module_of_its_own() -> None:
    assert [each.FORMAT for each in (haproxy, json_lines, nginx, postgresql, swift)] == [
        *("haproxy", "json", "nginx", "postgresql", "swift")
    ]
