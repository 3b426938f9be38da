"""Hosts files as strangers have them."""

from pathlib import Path

import pytest

from collector.decode.hosts_files import MOST_BYTES, NAMES_UNREAD, is_of_a_host, read_hosts_files, usable_name
from tracer.errors import InputError

DEBIAN = b"""127.0.0.1\tlocalhost
127.0.1.1\tbox.example.com\tbox

# The following lines are desirable for IPv6 capable hosts
::1     localhost ip6-localhost ip6-loopback
ff02::1 ip6-allnodes
ff02::2 ip6-allrouters
192.0.2.7 nas.example.com nas
"""
KUBERNETES = b"""# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
10.244.1.5\tweb-0.web.default.svc.cluster.local\tweb-0

# Entries added by HostAliases.
10.1.2.3\tfoo.remote\tbar.remote
"""
WINDOWS = (
    b"\xef\xbb\xbf# Copyright (c) 1993-2009 Microsoft Corp.\r\n#\r\n"
    b"#      102.54.94.97     rhino.acme.com          # source server\r\n"
    b"# localhost name resolution is handled within DNS itself.\r\n"
    b"10.9.8.7    fileserver\t# the old one\r\n"
)
MACOS = b"""##
# Host Database
##
127.0.0.1\tlocalhost
255.255.255.255\tbroadcasthost
::1             localhost
fe80::1%lo0\tlocalhost
fe80::7%en0\tprinter
"""
BLOCKLIST = b"0.0.0.0 ads.example.com\n0.0.0.0 0.0.0.0\n:: ads6.example.com\n127.0.0.1 tracker.example.net\n"

FILES: list[tuple[str, bytes, dict[str, tuple[str, ...]]]] = [
    ("Debian's", DEBIAN, {"192.0.2.7": ("nas.example.com", "nas")}),
    (
        "Kubernetes'",
        KUBERNETES,
        {
            "10.244.1.5": ("web-0.web.default.svc.cluster.local", "web-0"),
            "10.1.2.3": ("foo.remote", "bar.remote"),
        },
    ),
    ("Windows', CRLF and a BOM", WINDOWS, {"10.9.8.7": ("fileserver",)}),
    ("macOS', with zones", MACOS, {}),
    ("a blocklist", BLOCKLIST, {}),
    ("UTF-16 of PowerShell", "10.0.0.5 web1\r\n".encode("utf-16"), {"10.0.0.5": ("web1",)}),
    ("old ends of lines", b"10.0.0.5 web1\r10.0.0.6 web2\r", {"10.0.0.5": ("web1",), "10.0.0.6": ("web2",)}),
    ("no end of line", b"10.0.0.5 web1", {"10.0.0.5": ("web1",)}),
    ("two lines of an address", b"10.0.0.5 web1\n10.0.0.5 db web1\n", {"10.0.0.5": ("web1", "db")}),
    ("two addresses of a name", b"10.0.0.5 web1\n10.1.0.5 web1\n", {"10.0.0.5": ("web1",), "10.1.0.5": ("web1",)}),
    ("IPv6, written long", b"2001:DB8:0:0::0005 web1\n", {"2001:db8::5": ("web1",)}),
    ("the root's dot", b"10.0.0.5 web1.example.\n", {"10.0.0.5": ("web1.example",)}),
    ("a comment in Latin-1", "10.0.0.5 web1 # für Köln\n".encode("latin-1"), {"10.0.0.5": ("web1",)}),
    ("letters of any language", "10.0.0.5 büro_7\n".encode(), {"10.0.0.5": ("büro_7",)}),
]


def read(path: Path, data: bytes) -> tuple[dict[str, tuple[str, ...]], list[int]]:
    """The names in a file of these bytes, and the counts of lines that are unread."""
    path.write_bytes(data)
    (source,), counters = read_hosts_files([path])
    assert source.file == path.name
    assert all(counter.name == NAMES_UNREAD for counter in counters)
    return dict(source.names), [counter.count for counter in counters]


@pytest.mark.parametrize(("data", "names"), [each[1:] for each in FILES], ids=[each[0] for each in FILES])
def test_files_of_strangers_are_read(tmp_path: Path, data: bytes, names: dict[str, tuple[str, ...]]) -> None:
    assert read(tmp_path / "hosts", data) == (names, [])


@pytest.mark.parametrize(
    "line",
    [
        b"10.0.0.9",
        b"web9 10.0.0.9",
        b"10.0.0 web9",
        b"010.0.0.9 web9",
        b"10.0.0.9 <b>web9</b>",
        b"10.0.0.9 web\x1b[31m9",
        b"10.0.0.9 ../web9",
        b"10.0.0.9 10.0.0.10",
        "10.0.0.9 bücher".encode("latin-1"),
        "10.0.0.9 web\u202e9".encode(),
        b"10.0.0.9 " + b"w" * 254,
    ],
)
def test_a_line_that_names_nothing_is_counted(tmp_path: Path, line: bytes) -> None:
    assert read(tmp_path / "hosts", b"10.0.0.5 web1\n" + line + b"\n") == ({"10.0.0.5": ("web1",)}, [1])


def test_the_first_line_that_is_unread_is_named(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("10.0.0.5 web1\n\n# more\nweb2\nweb3\n")
    _, (counter,) = read_hosts_files([tmp_path / "hosts"])
    assert (counter.count, "line 4 of hosts" in counter.remedy) == (2, True)


def test_good_names_of_a_line_stay_beside_odd_ones(tmp_path: Path) -> None:
    assert read(tmp_path / "hosts", b"10.0.0.5 we|b web1\n")[0] == {"10.0.0.5": ("web1",)}


def test_what_is_no_hosts_file_is_refused(tmp_path: Path) -> None:
    for data in (b"", b"# nothing\n", b"hello world\n", bytes(range(256)) * 9):
        (tmp_path / "hosts").write_bytes(data)
        with pytest.raises(InputError, match="is no hosts file"):
            read_hosts_files([tmp_path / "hosts"])
    with pytest.raises(InputError, match="cannot be read"):
        read_hosts_files([tmp_path / "none"])
    with pytest.raises(InputError, match="cannot be read"):
        read_hosts_files([tmp_path])


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "hosts").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(InputError, match="longer than"):
        read_hosts_files([tmp_path / "hosts"])


def test_names_and_addresses_of_no_one_host() -> None:
    no_names = (
        "localhost",
        "LOCALHOST.localdomain",
        "localhost6.localdomain6",
        "ip6-allnodes",
        "10.0.0.1",
        "::1",
        "-",
        "",
    )
    assert [name for name in no_names if usable_name(name)] == []
    assert usable_name("localhost-7.example") == "localhost-7.example"
    assert [
        each
        for each in ("127.0.0.1", "::1", "0.0.0.0", "ff02::1", "224.0.0.1", "255.255.255.255")
        if is_of_a_host(each)
    ] == []
    assert is_of_a_host("fe80::7")
