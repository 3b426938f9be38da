"""Programs that people use with Swift, unmodified, against our store."""

import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import swiftclient

from testkit.loopback_store import Client, LoopbackStore

NAMES = ("plain.txt", "with space", "deep/er/file", "日本語 é.bin", "per%cent", "a+b&c=d")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of all kinds, the greatest of 3 MiB."""
    source = tmp_path / "source"
    for number, name in enumerate(NAMES):
        file = source / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(random.Random(number).randbytes(1000 * number))
    (source / "big").write_bytes(random.Random(9).randbytes(3 << 20))
    return source


def contents(folder: Path) -> dict[str, str]:
    """Name to digest of each file."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.md5(path.read_bytes()).hexdigest() for path in files}


def run(*argv: str, cwd: Path, environment: dict[str, str]) -> str:
    """A command's output. Raises: AssertionError with what it said, if it fails."""
    done = subprocess.run(
        argv, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


class TestPythonSwiftclient:
    """The library."""

    @pytest.fixture
    def connection(self, store: LoopbackStore) -> Iterator[swiftclient.Connection]:
        made = swiftclient.Connection(authurl=store.auth_url, user="test:tester", key="testing", retries=0)
        with contextlib.closing(made):
            yield made

    def test_account(self, connection: swiftclient.Connection) -> None:
        connection.post_account({"X-Account-Meta-Library": "yes"})
        assert connection.head_account()["x-account-meta-library"] == "yes"
        assert "swift" in connection.get_capabilities()

    def test_listings(self, connection: swiftclient.Connection) -> None:
        connection.put_container("library")
        for name in NAMES:
            connection.put_object("library", name, name.encode())
        listed = connection.get_container("library", full_listing=True, limit=2)[1]
        assert [entry["name"] for entry in listed] == sorted(NAMES)
        assert connection.get_container("library", delimiter="/", prefix="deep/")[1] == [{"subdir": "deep/er/"}]
        assert [entry["name"] for entry in connection.get_account(prefix="librar")[1]] == ["library"]

    def test_objects(self, connection: swiftclient.Connection) -> None:
        connection.put_container("library-objects")
        body = bytes(range(256)) * 1000
        etag = connection.put_object("library-objects", "o", iter([body[:5], body[5:]]), content_type="x/y")
        assert etag == hashlib.md5(body).hexdigest()
        headers, read = connection.get_object("library-objects", "o", resp_chunk_size=10_000)
        assert b"".join(read) == body
        assert headers["content-type"] == "x/y"
        connection.copy_object("library-objects", "o", "/library-objects/p", {"X-Object-Meta-A": "1"})
        assert connection.head_object("library-objects", "p")["x-object-meta-a"] == "1"
        connection.post_object("library-objects", "o", {"X-Object-Meta-B": "2"})
        assert connection.head_object("library-objects", "o")["x-object-meta-b"] == "2"
        for name in ("o", "p"):
            connection.delete_object("library-objects", name)
        connection.delete_container("library-objects")
        with pytest.raises(swiftclient.ClientException, match="404"):
            connection.head_container("library-objects")


class TestSwiftCommand:
    """The `swift` command."""

    @pytest.fixture
    def environment(self, store: LoopbackStore) -> dict[str, str]:
        return {"ST_AUTH": store.auth_url, "ST_USER": "test:tester", "ST_KEY": "testing"}

    @pytest.fixture
    def swift(self) -> str:
        return str(Path(sys.executable).with_name("swift"))

    def test_upload_list_download_delete(
        self, swift: str, environment: dict[str, str], folder: Path, tmp_path: Path
    ) -> None:
        run(swift, "upload", "command", ".", cwd=folder, environment=environment)
        listed = run(swift, "list", "command", cwd=folder, environment=environment).splitlines()
        assert sorted(listed) == sorted(contents(folder))
        assert "command" in run(swift, "list", cwd=folder, environment=environment).splitlines()
        target = tmp_path / "target"
        run(swift, "download", "command", "-D", str(target), cwd=tmp_path, environment=environment)
        assert contents(target) == contents(folder)
        run(swift, "delete", "command", cwd=folder, environment=environment)
        assert "command" not in run(swift, "list", cwd=folder, environment=environment).splitlines()

    @pytest.mark.parametrize("kind", ["--use-slo", "--use-dlo"])
    def test_segments(self, kind: str, swift: str, environment: dict[str, str], folder: Path, tmp_path: Path) -> None:
        box = f"segments{kind}"
        run(swift, "upload", kind, "-S", str(1 << 20), box, "big", cwd=folder, environment=environment)
        assert len(run(swift, "list", f"{box}_segments", cwd=folder, environment=environment).splitlines()) == 3
        run(swift, "download", box, "big", "-o", str(tmp_path / "big"), cwd=tmp_path, environment=environment)
        assert (tmp_path / "big").read_bytes() == (folder / "big").read_bytes()
        assert "Content Length: 3145728" in run(swift, "stat", box, "big", cwd=folder, environment=environment)
        run(swift, "delete", box, "big", cwd=folder, environment=environment)
        assert run(swift, "list", f"{box}_segments", cwd=folder, environment=environment) == ""

    def test_metadata_and_access(self, swift: str, environment: dict[str, str], folder: Path) -> None:
        run(
            swift,
            "post",
            "-r",
            ".r:*,.rlistings",
            "-m",
            "colour:blue",
            "described",
            cwd=folder,
            environment=environment,
        )
        run(swift, "upload", "described", "plain.txt", cwd=folder, environment=environment)
        run(swift, "post", "-m", "shape:round", "described", "plain.txt", cwd=folder, environment=environment)
        container = run(swift, "stat", "described", cwd=folder, environment=environment)
        assert "Read ACL: .r:*,.rlistings" in container
        assert "Meta Colour: blue" in container
        assert "Meta Shape: round" in run(swift, "stat", "described", "plain.txt", cwd=folder, environment=environment)
        assert "Containers:" in run(swift, "stat", cwd=folder, environment=environment)
        assert "bulk_delete" in run(swift, "capabilities", cwd=folder, environment=environment)

    def test_copy(self, swift: str, environment: dict[str, str], folder: Path) -> None:
        run(swift, "upload", "copied", "deep/er/file", cwd=folder, environment=environment)
        run(swift, "copy", "-d", "/elsewhere/file", "copied", "deep/er/file", cwd=folder, environment=environment)
        assert run(swift, "list", "elsewhere", cwd=folder, environment=environment) == "file\n"

    def test_tempurl(self, swift: str, environment: dict[str, str], folder: Path, store: LoopbackStore) -> None:
        run(swift, "post", "-m", "Temp-URL-Key:secret", "signed", cwd=folder, environment=environment)
        run(swift, "upload", "signed", "deep/er/file", cwd=folder, environment=environment)
        path = run(
            swift, "tempurl", "GET", "600", "/v1/AUTH_test/signed/deep/er/file", "secret", cwd=folder, environment={}
        )
        assert store.ask("GET", path.strip()).body == (folder / "deep/er/file").read_bytes()


@pytest.mark.skipif(shutil.which("rclone") is None, reason="rclone is not installed")
class TestRclone:
    """rclone's Swift backend."""

    @pytest.fixture
    def environment(self, store: LoopbackStore, tmp_path: Path) -> dict[str, str]:
        settings = {"TYPE": "swift", "AUTH": store.auth_url, "USER": "test:tester", "KEY": "testing"}
        named = {f"RCLONE_CONFIG_STORE_{name}": value for name, value in settings.items()}
        return named | {"RCLONE_CONFIG": str(tmp_path / "none.conf")}

    def test_copy_check_list_delete(self, environment: dict[str, str], folder: Path, tmp_path: Path) -> None:
        run("rclone", "copy", str(folder), "store:rclone/sub", cwd=folder, environment=environment)
        run("rclone", "check", str(folder), "store:rclone/sub", cwd=folder, environment=environment)
        listed = json.loads(
            run("rclone", "lsjson", "-R", "--files-only", "store:rclone", cwd=folder, environment=environment)
        )
        assert sorted(entry["Path"] for entry in listed) == sorted(f"sub/{name}" for name in contents(folder))
        run("rclone", "copy", "store:rclone/sub", str(tmp_path / "back"), cwd=folder, environment=environment)
        assert contents(tmp_path / "back") == contents(folder)
        run("rclone", "delete", "store:rclone/sub/deep", cwd=folder, environment=environment)
        assert "deep" not in run("rclone", "lsf", "-R", "store:rclone/sub", cwd=folder, environment=environment)
        run("rclone", "purge", "store:rclone", cwd=folder, environment=environment)

    def test_sync_and_move(self, environment: dict[str, str], folder: Path) -> None:
        run("rclone", "sync", str(folder), "store:synced", cwd=folder, environment=environment)
        (folder / "plain.txt").write_text("changed")
        (folder / "with space").unlink()
        run("rclone", "sync", str(folder), "store:synced", cwd=folder, environment=environment)
        run("rclone", "check", str(folder), "store:synced", cwd=folder, environment=environment)
        run("rclone", "moveto", "store:synced/plain.txt", "store:synced/moved.txt", cwd=folder, environment=environment)
        assert run("rclone", "cat", "store:synced/moved.txt", cwd=folder, environment=environment) == "changed"
        assert "3145728" in run(
            "rclone", "size", "--json", "--include", "big", "store:synced", cwd=folder, environment=environment
        )

    def test_chunks(self, environment: dict[str, str], folder: Path, tmp_path: Path) -> None:
        run("rclone", "copy", "--swift-chunk-size", "1Mi", "big", "store:chunked", cwd=folder, environment=environment)
        parts = run(
            "rclone", "lsf", "-R", "--files-only", "store:chunked_segments", cwd=folder, environment=environment
        )
        assert len(parts.splitlines()) == 3
        run("rclone", "copy", "store:chunked/big", str(tmp_path / "back"), cwd=folder, environment=environment)
        assert (tmp_path / "back/big").read_bytes() == (folder / "big").read_bytes()

    def test_deleted_and_overwritten_chunks_leave_no_segments(
        self, environment: dict[str, str], folder: Path, store: LoopbackStore
    ) -> None:
        copy = ("rclone", "copyto", "--swift-chunk-size", "1Mi", "big")
        for name in ("a", "b"):
            run(*copy, f"store:orphans/{name}", cwd=folder, environment=environment)
        (folder / "big").write_bytes(bytes(2 << 20))
        run(*copy, "store:orphans/b", cwd=folder, environment=environment)
        client = Client(store)

        def segments() -> int:
            return len(client("GET orphans_segments").body.splitlines())

        assert segments() == 3 + 2
        run("rclone", "deletefile", "store:orphans/a", cwd=folder, environment=environment)
        assert segments() == 2
        run("rclone", "delete", "store:orphans", cwd=folder, environment=environment)
        assert (segments(), client("GET orphans").body) == (0, b"")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
class TestCurl:
    """curl, which waits for `100 Continue` and sends chunks where asked."""

    @pytest.fixture
    def account(self, store: LoopbackStore) -> tuple[str, ...]:
        """A command line's beginning, with a token, and the account's address."""
        proxy = store.topology.service("proxy")
        url = f"http://{proxy.address}:{proxy.port}/v1/AUTH_test"
        return ("curl", "-sS", "-f", "-H", f"X-Auth-Token: {store.token()}", url)

    def test_upload_forms(self, account: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
        *curl, url = account
        run(*curl, "-X", "PUT", f"{url}/curl", cwd=folder, environment={})
        for name, options in (
            ("whole", ()),
            ("chunked", ("-H", "Transfer-Encoding: chunked")),
            ("expected", ("-H", "Expect: 100-continue")),
        ):
            run(*curl, *options, "-T", "big", f"{url}/curl/{name}", cwd=folder, environment={})
            run(*curl, "-o", str(tmp_path / name), f"{url}/curl/{name}", cwd=folder, environment={})
            assert (tmp_path / name).read_bytes() == (folder / "big").read_bytes()

    def test_archive(self, account: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
        *curl, url = account
        with tarfile.open(tmp_path / "x.tar", "w") as archive:
            archive.add(folder, "unpacked")
        asked = f"{url}/curl-tar?extract-archive=tar"
        for expect in ("Expect: 100-continue", "Expect:"):
            options = ("-H", "Accept: application/json", "-H", expect, "-T", "x.tar", asked)
            report = json.loads(run(*curl, *options, cwd=tmp_path, environment={}))
            assert (report["Number Files Created"], report["Errors"]) == (len(contents(folder)), [])
        run(*curl, "-o", str(tmp_path / "big"), f"{url}/curl-tar/unpacked/big", cwd=folder, environment={})
        assert (tmp_path / "big").read_bytes() == (folder / "big").read_bytes()
        (tmp_path / "paths").write_text("curl-tar/unpacked/deep/er/file\ncurl-tar/unpacked/big\n")
        options = ("-H", "Accept: application/json", "-H", "Expect: 100-continue", "--data-binary", "@paths")
        report = json.loads(run(*curl, *options, f"{url}?bulk-delete", cwd=tmp_path, environment={}))
        assert report["Number Deleted"] == 2

    def test_ranges_and_conditions(self, account: tuple[str, ...], folder: Path) -> None:
        *curl, url = account
        run(*curl, "-X", "PUT", f"{url}/curl", cwd=folder, environment={})
        run(*curl, "-T", "-", f"{url}/curl/o", cwd=folder, environment={})
        run(*curl, "-d", "hello world", "-X", "PUT", f"{url}/curl/o", cwd=folder, environment={})
        assert run(*curl, "-r", "6-", f"{url}/curl/o", cwd=folder, environment={}) == "world"
        assert run(*curl, "-H", "If-None-Match: *", f"{url}/curl/o", cwd=folder, environment={}) == ""
        head = run(*curl, "-I", f"{url}/curl/o", cwd=folder, environment={})
        assert "content-length: 11" in head.lower()

    def test_form(self, account: tuple[str, ...], folder: Path) -> None:
        *curl, url = account
        run(*curl, "-X", "PUT", "-H", "X-Container-Read: .r:*,.rlistings", f"{url}/open", cwd=folder, environment={})
        run(*curl, "-T", "plain.txt", f"{url}/open/", cwd=folder, environment={})
        anonymous = run("curl", "-sS", "-f", "--compressed", f"{url}/open?format=json", cwd=folder, environment={})
        assert [entry["name"] for entry in json.loads(anonymous)] == ["plain.txt"]
