"""A collector's own certificate authority: what is made, when it is made anew, and for whom it can be read."""

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

from collector.service.authority import COLLECTOR_LIFE, AuthorityFiles, own_token, prepare_authority
from tracer.errors import InputError
from tracer.tls import read_bundle

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
NAMES, URL = ("10.0.0.5", "collector.example", "::1"), "https://10.0.0.5:8710"


def prepare(folder: Path, names: tuple[str, ...] = NAMES, url: str = URL, now: datetime = NOW) -> list[str]:
    return prepare_authority(folder, names, url, "abc", now)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_all_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "ca"
    said = prepare(folder)
    assert [line.split(" is in ")[0] for line in said[:2]] == [
        "a new certificate authority",
        "a certificate for 10.0.0.5, collector.example, ::1",
    ]
    assert said[2].startswith(f"agents need {folder / 'agent.pem'}: copy it to each host, then: tracer capture")
    before = contents(folder)
    assert sorted(before) == ["agent.pem", "ca.key", "ca.pem", "collector.pem", "operator.p12"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert prepare(folder, now=NOW + COLLECTOR_LIFE / 2) == []
    assert contents(folder) == before


def test_agents_need_one_file(tmp_path: Path) -> None:
    prepare(tmp_path)
    files = AuthorityFiles(tmp_path)
    bundle = read_bundle(files.agent)
    assert (bundle.url, bundle.token) == (URL, "abc")
    assert bundle.authorities == files.ca.read_text()
    key, certificate, others = load_key_and_certificates(files.operator.read_bytes(), None)
    assert key is not None
    assert certificate == x509.load_pem_x509_certificate(files.agent.read_bytes())
    assert others == [x509.load_pem_x509_certificate(files.ca.read_bytes())]


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        ({"now": NOW + COLLECTOR_LIFE * 0.7}, {"collector.pem"}),
        ({"names": (*NAMES, "10.0.0.6")}, {"collector.pem"}),
        ({"names": NAMES[:1]}, set()),
        ({"url": "https://10.0.0.9:1"}, {"agent.pem", "operator.p12"}),
    ],
)
def test_what_no_longer_fits_is_made_anew(tmp_path: Path, arguments: dict[str, object], changed: set[str]) -> None:
    prepare(tmp_path)
    before = contents(tmp_path)
    prepare(tmp_path, **arguments)
    after = contents(tmp_path)
    # a browser's file is packed anew with another salt
    assert {name for name in after if after[name] != before[name]} - {"operator.p12"} == changed - {"operator.p12"}
    assert read_bundle(tmp_path / "agent.pem").authorities == (tmp_path / "ca.pem").read_text()
    of_agents = [x509.load_pem_x509_certificate(each["agent.pem"]) for each in (before, after)]
    assert of_agents[0] == of_agents[1], "agents that have the earlier bundle are let in"


def test_without_the_authoritys_key_all_stays(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "ca.key").unlink()
    before = contents(tmp_path)
    assert prepare(tmp_path, ("other.example",), now=NOW + timedelta(days=3000)) == []
    assert contents(tmp_path) == before


def test_files_that_are_no_authority_are_one_line(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "ca.key").write_text("no key")
    with pytest.raises(InputError, match=r"are no authority; give --make-ca an empty folder"):
        prepare(tmp_path)


def test_a_token_is_made_up_once(tmp_path: Path) -> None:
    token = own_token(tmp_path / "ca")
    assert len(token) > 20
    assert own_token(tmp_path / "ca") == token
    assert (tmp_path / "ca" / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(shutil.which("openssl") is None, reason="NOT TESTED: certificates by OpenSSL's own program")
def test_openssl_accepts_each_for_its_purpose_alone(tmp_path: Path) -> None:
    prepare(tmp_path, now=datetime.now(UTC))

    def accepts(name: str, purpose: str) -> bool:
        argv = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", tmp_path / "ca.pem"]
        return subprocess.run([*argv, tmp_path / name], capture_output=True, check=False).returncode == 0

    found = {(name, purpose): accepts(name, purpose) for name in ("collector.pem", "agent.pem")
             for purpose in ("sslserver", "sslclient")}  # fmt: skip
    assert found == {
        ("collector.pem", "sslserver"): True,
        ("collector.pem", "sslclient"): False,
        ("agent.pem", "sslserver"): False,
        ("agent.pem", "sslclient"): True,
    }
