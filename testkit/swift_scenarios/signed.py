"""What is asked with signatures instead of tokens. Source: Swift documentation, "TempURL" and "FormPost"."""

import base64
import dataclasses
import hmac
import time
from urllib.parse import quote, unquote

from testkit.swift_scenarios.site import ACCOUNT, Answer, Site

OBJECT = "/t/dir/o%20x.txt"


@dataclasses.dataclass(frozen=True)
class _Signing:
    """How an address is signed, and what goes wrong with it."""

    key: str = "akey"
    digest: str = "sha1"
    base64: bool = False
    method: str | None = None
    expires: str | None = None
    shown_expires: str | None = None
    prefix: str | None = None
    ip_range: str | None = None
    extra: str = ""


def tempurl(site: Site) -> None:
    """Signed addresses."""
    site.quietly("PUT", "/t", {"X-Container-Meta-Temp-Url-Key": "ckey"})
    site.quietly("POST", "", {"X-Account-Meta-Temp-Url-Key": "akey", "X-Account-Meta-Temp-Url-Key-2": "akey2"})
    described = {"Content-Type": "text/plain", "X-Object-Meta-Foo": "1", "X-Object-Meta-Public-A": "2"}
    site.quietly("PUT", OBJECT, described | {"Content-Disposition": "inline"}, b"hello")
    site.quietly("PUT", "/t/plain.txt", {"Content-Type": "text/plain"}, b"plain")
    site.quietly("PUT", "/t/a%22b", {}, b"x")
    _methods(site)
    _keys_and_digests(site)
    _times(site)
    _file_names(site)
    _places(site)
    for query in ("temp_url_sig=abc", "temp_url_expires=9999999999", "temp_url_sig=abc&temp_url_expires=9999999999"):
        site.ask("GET", f"{OBJECT}?{query}", user=None)
        site.ask("GET", f"{OBJECT}?{query}")
    site.ask("GET", "/t?temp_url_sig=abc&temp_url_expires=9999999999", user=None)
    site.ask("OPTIONS", f"{OBJECT}?temp_url_sig=abc&temp_url_expires=9999999999", user=None)


def _methods(site: Site) -> None:
    for method in ("GET", "HEAD"):
        _send_signed(site, method, OBJECT)
    for signed in ("GET", "PUT", "POST", "DELETE"):
        _send_signed(site, "HEAD", OBJECT, _Signing(method=signed))
    _send_signed(site, "PUT", "/t/new", body=b"abc")
    _send_signed(site, "GET", "/t/new", _Signing(method="PUT"))
    _send_signed(site, "PUT", "/t/new", _Signing(method="GET"), body=b"abc")
    _send_signed(site, "POST", "/t/new", headers={"X-Object-Meta-Z": "1"})
    _send_signed(site, "DELETE", "/t/new")
    for headers in ({"X-Object-Manifest": "t/x"}, {"X-Copy-From": "/t/plain.txt"}, {"X-Timestamp": "1"}):
        _send_signed(site, "PUT", "/t/new", headers=headers, body=b"")
    _send_signed(site, "COPY", OBJECT, headers={"Destination": "t/x"})
    _send_signed(site, "GET", "/t/none")
    _send_signed(site, "PUT", "/none/new", body=b"")
    _send_signed(site, "GET", "/t")
    _send_signed(site, "GET", "/t/plain.txt", headers={"Range": "bytes=1-2"})
    _send_signed(site, "GET", "/t/plain.txt", headers={"If-None-Match": "*"})


def _keys_and_digests(site: Site) -> None:
    for key in ("akey2", "ckey", "wrong"):
        _send_signed(site, "GET", "/t/plain.txt", _Signing(key=key))
    for digest in ("sha256", "sha512", "md5"):
        _send_signed(site, "GET", "/t/plain.txt", _Signing(digest=digest))
        _send_signed(site, "GET", "/t/plain.txt", _Signing(digest=digest, base64=True))


def _times(site: Site) -> None:
    later = int(time.time()) + 1000
    _send_signed(site, "GET", "/t/plain.txt", _Signing(expires=str(int(time.time()) - 5)))
    _send_signed(site, "GET", "/t/plain.txt", _Signing(expires="never"))
    for form in ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S"):
        shown = time.strftime(form, time.gmtime(later))
        _send_signed(site, "GET", "/t/plain.txt", _Signing(expires=str(later), shown_expires=shown))
    _send_signed(site, "GET", "/t/plain.txt", _Signing(expires="2145916800", shown_expires="2038-01-01"))


def _file_names(site: Site) -> None:
    for extra in (
        "filename=foo",
        "inline",
        "filename=f%C3%A9&inline=",
        "filename=a%0d%0ab%22c",
        "filename=",
        "other=1",
    ):
        _send_signed(site, "GET", "/t/plain.txt", _Signing(extra=f"&{extra}"))
        _send_signed(site, "GET", OBJECT, _Signing(extra=f"&{extra}"))
    _send_signed(site, "GET", "/t/a%22b")


def _places(site: Site) -> None:
    for ip_range in ("0.0.0.0/0", "192.0.2.0/24", "junk"):
        _send_signed(site, "GET", "/t/plain.txt", _Signing(ip_range=ip_range))
    for prefix, shown in (("dir/", "dir/"), ("dir/", "zz"), ("", ""), ("dir", "dir"), ("dir/", "dir")):
        _send_signed(site, "GET", OBJECT, _Signing(prefix=prefix, extra=f"&temp_url_prefix={shown}"))


def _send_signed(
    site: Site,
    method: str,
    path: str,
    how: _Signing | None = None,
    *,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> Answer:
    how = how or _Signing()
    expires = how.expires or str(int(time.time()) + 1000)
    signed_path = ACCOUNT + unquote(path)
    if how.prefix is not None:
        signed_path = f"prefix:{ACCOUNT}/{path.split('/')[1]}/{how.prefix}"
    text = f"{how.method or method}\n{expires}\n{signed_path}"
    if how.ip_range is not None:
        text = f"ip={how.ip_range}\n{text}"
    made = hmac.digest(how.key.encode(), text.encode(), how.digest)
    shown = f"{how.digest}:{base64.b64encode(made).decode()}" if how.base64 else made.hex()
    query = f"temp_url_sig={quote(shown, safe='')}&temp_url_expires={quote(how.shown_expires or expires, safe='')}"
    if how.ip_range is not None:
        query += f"&temp_url_ip_range={quote(how.ip_range)}"
    return site.ask(method, f"{path}?{query}{how.extra}", headers, body, user=None)


@dataclasses.dataclass(frozen=True)
class _File:
    name: str = "a.txt"
    content_type: str = "text/plain"
    body: bytes = b"hello"


def formpost(site: Site) -> None:
    """Uploads from signed forms."""
    site.quietly("PUT", "/f")
    site.quietly("POST", "", {"X-Account-Meta-Temp-Url-Key": "akey"})
    _form(site)
    _form(site, redirect="http://example.com/x")
    _form(site, redirect="http://example.com/x?y=1")
    for digest in ("sha256", "sha512"):
        _form(site, digest=digest)
    _form(site, key="wrong")
    _form(site, key="wrong", redirect="http://example.com")
    for expires in ("5", "never"):
        _form(site, expires=expires)
    _form(site, max_file_size="3")
    _form(site, max_file_size="x")
    _form(site, max_file_count="1", files=(_File("1"), _File("2")))
    _form(site, max_file_count="0")
    _form(site, files=(_File("1"), _File("2", "image/png", bytes(60))))
    _form(site, files=())
    _form(site, files=(_File(""),))
    for dropped in ("redirect", "max_file_size", "expires", "signature"):
        _form(site, dropped=dropped)
    _form(site, extra={"x_delete_after": "600"})
    _form(site, extra={"x_delete_at": "x"})
    _form(site, extra={"content-type": "text/x", "content-encoding": "gzip"}, files=(_File("typed"),))
    for path in ("/f", "/f/", "/none/x", "/f/%E2%98%83"):
        _form(site, path=path)
    site.ask("GET", "/f?format=json")
    site.ask("HEAD", "/f/pre_a.txt")
    site.ask("HEAD", "/f/pre_typed")
    for kind, body in (("; boundary=x", b"garbage"), ("", b"garbage"), ("; boundary=x", b"--x\r\n\r\n")):
        site.ask("POST", "/f/pre_", {"Content-Type": f"multipart/form-data{kind}"}, body, user=None)


def _form(
    site: Site,
    *,
    path: str = "/f/pre_",
    redirect: str = "",
    max_file_size: str = "100",
    max_file_count: str = "2",
    expires: str | None = None,
    key: str = "akey",
    digest: str = "sha1",
    dropped: str = "",
    extra: dict[str, str] | None = None,
    files: tuple[_File, ...] = (_File(),),
) -> Answer:
    fields = {"redirect": redirect, "max_file_size": max_file_size, "max_file_count": max_file_count}
    fields["expires"] = expires or str(int(time.time()) + 600)
    text = "\n".join([ACCOUNT + unquote(path), *fields.values()])
    fields["signature"] = hmac.digest(key.encode(), text.encode(), digest).hex()
    parts = [
        f'--bd\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in (fields | (extra or {})).items()
        if name != dropped
    ]
    for file in files:
        head = f'--bd\r\nContent-Disposition: form-data; name="f"; filename="{file.name}"\r\n'
        parts.append(f"{head}Content-Type: {file.content_type}\r\n\r\n".encode() + file.body + b"\r\n")
    body = b"".join([*parts, b"--bd--\r\n"])
    return site.ask("POST", path, {"Content-Type": "multipart/form-data; boundary=bd"}, body, user=None)
