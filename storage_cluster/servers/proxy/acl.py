"""Access lists: their syntax, and whom they admit.

A container's read and write list is text: `account`, `account:user`, `*:user` (a user of that name in any account),
`.r:*` (everybody), `.r:example.com` or `.r:.example.com` (whoever comes from a page there, or from below there),
`.r:-host` (but not from there), `.rlistings` (those who come by `.r:` may list as well). The last referrer that fits
decides. An account's list is JSON: `{"admin": […], "read-write": […], "read-only": […]}`.

Source: Swift, "Access Control Lists (ACLs)"; messages as Swift 2.30.1 gives them. `*:user` is keystoneauth's, not
tempauth's.
"""

import dataclasses
import json
from collections.abc import Collection
from urllib.parse import urlsplit

from storage_cluster.servers.http.messages import Refusal

REFERRER = ".r:"
_REFERRER_WORDS = (".r", ".ref", ".referer", ".referrer")
ACCOUNT_ROLES = ("admin", "read-write", "read-only")


@dataclasses.dataclass(frozen=True)
class AccountAccess:
    """Who but its own users may use an account, by role."""

    admin: frozenset[str] = frozenset()
    read_write: frozenset[str] = frozenset()
    read_only: frozenset[str] = frozenset()


def clean(text: str, *, writing: bool) -> str:
    """A container's list in its usual spelling. Raises: Refusal (400) with what is wrong."""
    entries = (entry.strip() for entry in text.split(","))
    return ",".join(_clean_entry(entry, writing) for entry in entries if entry)


def names_user(text: str | None, groups: Collection[str]) -> bool:
    """Whether a list names one of a user's groups."""
    entries = {entry for entry in (text or "").split(",") if not entry.startswith(REFERRER)}
    users = {group.partition(":")[2] for group in groups if ":" in group}
    return not entries.isdisjoint(groups) or any(f"*:{user}" in entries for user in users)


def lets_everybody(text: str | None, referer: str | None) -> bool:
    """Whether a list lets in anybody who comes from that page (None: from nowhere)."""
    host = _host(referer)
    allowed = False
    for entry in (text or "").split(","):
        if entry.startswith(REFERRER + "-"):
            allowed = allowed and not _fits(entry[len(REFERRER) + 1 :], host)
        elif entry.startswith(REFERRER):
            allowed = allowed or entry == REFERRER + "*" or _fits(entry[len(REFERRER) :], host)
    return allowed


def lets_list(text: str | None) -> bool:
    """Whether those who are let in by where they come from may list the container."""
    return ".rlistings" in (text or "").split(",")


def parse_account(text: str) -> AccountAccess:
    """An account's list, from its usual spelling."""
    found = json.loads(text or "{}")
    return AccountAccess(*(frozenset(found.get(role, ())) for role in ACCOUNT_ROLES))


def clean_account(text: str) -> str:
    """An account's list in its usual spelling, empty if it says nothing. Raises: Refusal (400) with what is wrong."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _invalid(f"Syntax error in input ({text!r})", text)
    for role, users in found.items():
        _check_role(role, users, text)
    return json.dumps(found, separators=(",", ":"), sort_keys=True) if found else ""


def _clean_entry(entry: str, writing: bool) -> str:
    first, colon, second = (part.strip() for part in entry.partition(":"))
    if not colon or not first.startswith("."):
        return entry
    if first not in _REFERRER_WORDS:
        raise Refusal(400, f"Unknown designator {first!r} in ACL: {entry!r}")
    if writing:
        raise Refusal(400, f"Referrers not allowed in write ACL: {entry!r}")
    minus, host = ("-", second[1:].strip()) if second.startswith("-") else ("", second)
    if len(host) > 1 and host.startswith("*"):
        host = host[1:].strip()
    if host in ("", "."):
        raise Refusal(400, f"No host/domain value after referrer designation in ACL: {entry!r}")
    return f"{REFERRER}{minus}{host}"


def _host(referer: str | None) -> str:
    try:
        return urlsplit(referer or "").hostname or "unknown"
    except ValueError:
        return "unknown"


def _fits(pattern: str, host: str) -> bool:
    return pattern == host or (pattern.startswith(".") and host.endswith(pattern))


def _check_role(role: str, users: object, text: str) -> None:
    if role not in ACCOUNT_ROLES:
        raise _invalid(f"Key {json.dumps(role)} not recognized", text)
    if not isinstance(users, list):
        raise _invalid(f"Value for key {json.dumps(role)} must be a list", text)
    if not all(isinstance(user, str) for user in users):
        raise _invalid(f"Elements of {json.dumps(role)} list must be strings", text)


def _invalid(what: str, text: str) -> Refusal:
    plain = {"Content-Type": "text/plain; charset=UTF-8"}
    return Refusal(400, f"X-Account-Access-Control invalid: {what}\n\nInput: {text}\n", plain)
