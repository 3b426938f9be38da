"""Bucket policies: statements that allow or deny actions, and how a request is judged by them.

A statement holds for a request if its principal, action, resource and all its conditions do. One that denies outranks
all that allow; where none holds, the access control lists decide. What cannot be evaluated (an unknown operator) is
refused when the policy is stored, so that no statement is silently ignored.

Source: AWS IAM user guide, "IAM JSON policy reference", "Policy evaluation logic".
"""

import dataclasses
import enum
import functools
import ipaddress
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from storage_cluster.servers.s3.errors import S3Error

POLICY_MAX_BYTES = 20_480
_VERSIONS = ("2008-10-17", "2012-10-17")
_KEYS = {
    *("Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition"),
}
_PUBLIC_CONDITIONS = ("aws:sourceip", "aws:sourcevpc", "aws:principalarn", "aws:userid")


class Verdict(enum.Enum):
    """What a policy says of a request."""

    ALLOW = "allow"
    DENY = "deny"
    SILENT = "silent"


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request as policies see it."""

    user_id: str | None  # None: not signed
    action: str  # s3:GetObject
    resource: str  # arn:aws:s3:::bucket/key
    values: Mapping[str, str]  # condition key in lower case (s3:prefix, aws:sourceip) to value; those that are there


@dataclasses.dataclass(frozen=True)
class Statement:
    """One statement."""

    allows: bool
    principals: tuple[str, ...]
    not_principals: bool
    actions: tuple[str, ...]
    not_actions: bool
    resources: tuple[str, ...]
    not_resources: bool
    conditions: tuple[tuple[str, str, tuple[str, ...]], ...]  # operator, key in lower case, values

    def holds_for(self, asked: Asked) -> bool:
        """Whether it says anything about the request."""
        return (
            any(_names_user(one, asked.user_id) for one in self.principals) != self.not_principals
            and any(_matches(one.lower(), asked.action.lower()) for one in self.actions) != self.not_actions
            and any(_matches(one, asked.resource) for one in self.resources) != self.not_resources
            and all(_condition_holds(*condition, asked.values) for condition in self.conditions)
        )


@dataclasses.dataclass(frozen=True)
class Policy:
    """A bucket's policy, and its text as it was stored."""

    text: str
    statements: tuple[Statement, ...]

    def judge(self, asked: Asked) -> Verdict:
        """What it says of a request."""
        holding = [statement for statement in self.statements if statement.holds_for(asked)]
        if any(not statement.allows for statement in holding):
            return Verdict.DENY
        return Verdict.ALLOW if holding else Verdict.SILENT

    @property
    def is_public(self) -> bool:
        """Whether it allows anything to everybody, without a condition on where the request comes from."""
        return any(
            statement.allows
            and ("*" in statement.principals) != statement.not_principals
            and not any(key in _PUBLIC_CONDITIONS for _, key, _ in statement.conditions)
            for statement in self.statements
        )


@functools.lru_cache(256)
def parse_policy(text: str, bucket: str) -> Policy:
    """A policy for a bucket. Raises: S3Error (MalformedPolicy)."""
    try:
        document = json.loads(text)
    except ValueError:
        raise S3Error("MalformedPolicy", "Policies must be valid JSON and the first byte must be '{'") from None
    if not isinstance(document, dict) or not document.get("Statement"):
        raise S3Error("MalformedPolicy", "Missing required field Statement")
    if document.get("Version", _VERSIONS[0]) not in _VERSIONS:
        raise S3Error("MalformedPolicy", "The policy must contain a valid version string")
    statements = document["Statement"]
    listed = statements if isinstance(statements, list) else [statements]
    return Policy(text, tuple(_parse_statement(one, bucket) for one in listed))


def _parse_statement(one: Any, bucket: str) -> Statement:
    if not isinstance(one, dict) or one.get("Effect") not in ("Allow", "Deny") or set(one) - _KEYS:
        raise S3Error("MalformedPolicy", "Policy has an invalid statement")
    principals, not_principals = _either(one, "Principal")
    if not_principals and one["Effect"] == "Allow":
        raise S3Error("MalformedPolicy", "Allow with NotPrincipal is not allowed")
    actions, not_actions = _either(one, "Action")
    resources, not_resources = _either(one, "Resource")
    if any(not _is_of_bucket(resource, bucket) for resource in resources):
        raise S3Error("MalformedPolicy", "Policy has invalid resource")
    if any(not _matches_prefix(action) for action in actions):
        raise S3Error("MalformedPolicy", "Policy has invalid action")
    return Statement(
        allows=one["Effect"] == "Allow",
        principals=principals,
        not_principals=not_principals,
        actions=actions,
        not_actions=not_actions,
        resources=resources,
        not_resources=not_resources,
        conditions=tuple(_parse_conditions(one.get("Condition", {}))),
    )


def _either(one: Mapping[str, Any], name: str) -> tuple[tuple[str, ...], bool]:
    """The values of `name` or of `Not<name>`, and whether it is the latter."""
    if (name in one) == (f"Not{name}" in one):
        raise S3Error("MalformedPolicy", f"Missing required field {name}")
    value = one[name] if name in one else one[f"Not{name}"]
    if name == "Principal" and isinstance(value, dict):
        if set(value) - {"AWS", "CanonicalUser"}:
            raise S3Error("MalformedPolicy", "Invalid principal in policy")
        value = [text for listed in value.values() for text in _texts(listed)]
    return _texts(value), name not in one


def _texts(value: Any) -> tuple[str, ...]:
    listed = value if isinstance(value, list) else [value]
    if not listed or any(not isinstance(text, str) for text in listed):
        raise S3Error("MalformedPolicy")
    return tuple(listed)


def _parse_conditions(given: Any) -> list[tuple[str, str, tuple[str, ...]]]:
    if not isinstance(given, dict) or any(not isinstance(keys, dict) for keys in given.values()):
        raise S3Error("MalformedPolicy", "Policy has an invalid condition")
    found = []
    for operator, keys in given.items():
        if operator.removesuffix("IfExists") not in _OPERATORS and operator != "Null":
            raise S3Error("MalformedPolicy", f"Invalid Condition type : {operator}")
        for key, value in keys.items():
            listed = value if isinstance(value, list) else [value]
            found.append((operator, key.lower(), tuple(_condition_text(one) for one in listed)))
    return found


def _condition_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise S3Error("MalformedPolicy", "Policy has an invalid condition")
    return str(value)


def _condition_holds(operator: str, key: str, wanted: Sequence[str], values: Mapping[str, str]) -> bool:
    found = values.get(key)
    if operator == "Null":
        return (found is None) == (wanted[0].lower() == "true")
    compare, negated = _OPERATORS[operator.removesuffix("IfExists")]
    if found is None:
        return operator.endswith("IfExists") or negated
    return any(_holds(compare, found, one) for one in wanted) != negated


def _holds(compare: Callable[[str, str], bool], found: str, wanted: str) -> bool:
    try:
        return compare(found, wanted)
    except ValueError:
        return False


def _matches(pattern: str, text: str) -> bool:
    """Whether a text matches a pattern in which `*` stands for any characters and `?` for one."""
    return _pattern(pattern).fullmatch(text) is not None


@functools.lru_cache(1024)
def _pattern(pattern: str) -> re.Pattern[str]:
    escaped = (".*" if one == "*" else "." if one == "?" else re.escape(one) for one in re.sub(r"\*+", "*", pattern))
    return re.compile("".join(escaped), re.DOTALL)


def _matches_prefix(action: str) -> bool:
    return action == "*" or action.lower().startswith("s3:")


def _is_of_bucket(resource: str, bucket: str) -> bool:
    """Whether a resource can be something of the bucket."""
    name = resource.removeprefix("arn:aws:s3:::").partition("/")[0]
    return resource == "*" or (resource.startswith("arn:aws:s3:::") and _matches(name, bucket))


def _names_user(principal: str, user_id: str | None) -> bool:
    if principal == "*":
        return True
    if user_id is None:
        return False
    account = user_id.partition(":")[0]
    if principal == user_id:
        return True
    kind, _, name = principal.rpartition(":")
    if not principal.startswith("arn:aws:iam:"):
        return False
    if name == "root" or principal.endswith(":root"):
        return kind.rpartition(":")[2] == account
    return principal.partition(":user/")[2] in (user_id, user_id.partition(":")[2])


def _in_network(found: str, wanted: str) -> bool:
    return ipaddress.ip_address(found) in ipaddress.ip_network(wanted, strict=False)


_OPERATORS: dict[str, tuple[Callable[[str, str], bool], bool]] = {
    "StringEquals": (lambda found, wanted: found == wanted, False),
    "StringNotEquals": (lambda found, wanted: found == wanted, True),
    "StringEqualsIgnoreCase": (lambda found, wanted: found.lower() == wanted.lower(), False),
    "StringNotEqualsIgnoreCase": (lambda found, wanted: found.lower() == wanted.lower(), True),
    "StringLike": (lambda found, wanted: _matches(wanted, found), False),
    "StringNotLike": (lambda found, wanted: _matches(wanted, found), True),
    "ArnEquals": (lambda found, wanted: _matches(wanted, found), False),
    "ArnLike": (lambda found, wanted: _matches(wanted, found), False),
    "NumericEquals": (lambda found, wanted: float(found) == float(wanted), False),
    "NumericNotEquals": (lambda found, wanted: float(found) == float(wanted), True),
    "NumericLessThan": (lambda found, wanted: float(found) < float(wanted), False),
    "NumericLessThanEquals": (lambda found, wanted: float(found) <= float(wanted), False),
    "NumericGreaterThan": (lambda found, wanted: float(found) > float(wanted), False),
    "NumericGreaterThanEquals": (lambda found, wanted: float(found) >= float(wanted), False),
    "Bool": (lambda found, wanted: found.lower() == wanted.lower(), False),
    "IpAddress": (_in_network, False),
    "NotIpAddress": (_in_network, True),
}
"""Operator to how a value is compared, and whether the answer is turned round."""
