"""Policies of browser uploads: what a form may contain, signed by whoever lets the browser upload.

Every field of a form must be named by a condition, but for the file, the signature and what begins with `x-ignore-`.

Source: Amazon S3 API reference, "Browser-Based Uploads Using POST (AWS Signature Version 4)", "POST Policy".
"""

import base64
import binascii
import dataclasses
import datetime
import json
from collections.abc import Mapping
from typing import Any

from storage_cluster.servers.s3.errors import S3Error

_UNCOVERED = ("policy", "signature", "awsaccesskeyid", "file", "x-amz-signature")
_IGNORED_PREFIX = "x-ignore-"


@dataclasses.dataclass(frozen=True)
class Condition:
    """What one field must be: this text, or a text that begins with it."""

    field: str  # in lower case
    text: str
    is_prefix: bool

    def holds_for(self, value: str) -> bool:
        """Whether the field's value is as the condition says."""
        return value.startswith(self.text) if self.is_prefix else value == self.text


@dataclasses.dataclass(frozen=True)
class PostPolicy:
    """A form's policy."""

    expiration: datetime.datetime
    conditions: tuple[Condition, ...]
    size_min: int = 0
    size_max: int | None = None

    def check(self, fields: Mapping[str, str], now: datetime.datetime) -> None:
        """Raises: S3Error (AccessDenied) unless it is in force and allows these fields (names in lower case)."""
        if now >= self.expiration:
            raise S3Error("AccessDenied", "Invalid according to Policy: Policy expired.")
        for condition in self.conditions:
            if condition.field not in fields or not condition.holds_for(fields[condition.field]):
                raise S3Error(
                    "AccessDenied", f"Invalid according to Policy: Policy Condition failed: {condition.field}"
                )
        covered = {condition.field for condition in self.conditions}
        for name in fields:
            if name not in covered and name not in _UNCOVERED and not name.startswith(_IGNORED_PREFIX):
                raise S3Error("AccessDenied", f"Invalid according to Policy: Extra input fields: {name}")


def parse_post_policy(text: str) -> PostPolicy:
    """The policy in a form's field, in base64. Raises: S3Error (InvalidPolicyDocument)."""
    try:
        document = json.loads(base64.b64decode(text))
        expiration = datetime.datetime.fromisoformat(document["expiration"])
        listed = document["conditions"]
        found = [_parse_condition(one) for one in listed]
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise S3Error("InvalidPolicyDocument", f"Invalid Policy: {error}") from None
    if expiration.tzinfo is None:
        raise S3Error("InvalidPolicyDocument", "Invalid Policy: the expiration has no time zone")
    conditions = tuple(one for one in found if isinstance(one, Condition))
    sizes = [one for one in found if isinstance(one, tuple)]
    size_min, size_max = sizes[-1] if sizes else (0, None)
    return PostPolicy(expiration, conditions, size_min, size_max)


def _parse_condition(one: Any) -> Condition | tuple[int, int]:
    """A condition, or the least and the greatest size. Raises: ValueError, TypeError, AttributeError."""
    if isinstance(one, dict):
        ((name, text),) = one.items()
        return Condition(name.lower(), _text(text), is_prefix=False)
    operator, first, second = one
    if operator.lower() == "content-length-range":
        if not 0 <= int(first) <= int(second):
            raise ValueError("content-length-range is no range")
        return int(first), int(second)
    if operator.lower() not in ("eq", "starts-with") or not first.startswith("$"):
        raise ValueError(f"{operator} is no condition")
    return Condition(first[1:].lower(), _text(second), is_prefix=operator.lower() == "starts-with")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("the value of a condition is no text")
    return value
