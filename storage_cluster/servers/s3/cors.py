"""Cross-origin requests: a bucket's rules, preflight requests, and the headers that browsers look for.

Source: Amazon S3 user guide, "Using cross-origin resource sharing (CORS)"; the Fetch standard.
"""

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from storage_cluster.servers.s3.documents import DocumentError, child_text, child_texts, element, elements, parse
from storage_cluster.servers.s3.errors import S3Error

METHODS = ("GET", "PUT", "POST", "DELETE", "HEAD")
RULES_MAX = 100

Rule = Mapping[str, Any]


def rules_in_document(text: bytes) -> list[Rule]:
    """The rules in a `CORSConfiguration`, as they are kept. Raises: S3Error."""
    try:
        root = parse(text, "CORSConfiguration")
    except DocumentError:
        raise S3Error("MalformedXML") from None
    rules = [_rule(one) for one in root.findall("CORSRule")]
    if not 1 <= len(rules) <= RULES_MAX:
        raise S3Error("MalformedXML")
    return rules


def rules_document(rules: Sequence[Rule]) -> Element:
    """Rules as a document's root."""
    return element("CORSConfiguration", *map(_rule_element, rules))


def headers_for(
    rules: Sequence[Rule], origin: str, method: str, asked_headers: Sequence[str] = ()
) -> dict[str, str] | None:
    """The headers of a response to a request from this origin; None if no rule allows it."""
    for rule in rules:
        if (
            method in rule["methods"]
            and _any_matches(rule["origins"], origin)
            and all(_any_matches([one.lower() for one in rule["headers"]], header.lower()) for header in asked_headers)
        ):
            return _headers(rule, origin, asked_headers)
    return None


def _headers(rule: Rule, origin: str, asked_headers: Sequence[str]) -> dict[str, str]:
    everybody = "*" in rule["origins"]
    headers = {
        "Access-Control-Allow-Origin": "*" if everybody else origin,
        "Access-Control-Allow-Methods": ", ".join(rule["methods"]),
        "Vary": "Origin, Access-Control-Request-Headers, Access-Control-Request-Method",
    }
    if not everybody:
        headers["Access-Control-Allow-Credentials"] = "true"
    if asked_headers:
        headers["Access-Control-Allow-Headers"] = ", ".join(asked_headers)
    if rule["exposed"]:
        headers["Access-Control-Expose-Headers"] = ", ".join(rule["exposed"])
    if rule["max_age_s"] is not None:
        headers["Access-Control-Max-Age"] = str(rule["max_age_s"])
    return headers


def _rule(one: Element) -> Rule:
    methods, age = child_texts(one, "AllowedMethod"), child_text(one, "MaxAgeSeconds")
    origins, headers = child_texts(one, "AllowedOrigin"), child_texts(one, "AllowedHeader")
    if not methods or not origins or (age is not None and not age.isdigit()):
        raise S3Error("MalformedXML")
    if any(method not in METHODS for method in methods):
        raise S3Error("InvalidRequest", "Found unsupported HTTP method in CORS config.")
    if any(text.count("*") > 1 for text in (*origins, *headers)):
        raise S3Error("InvalidRequest", "AllowedOrigin and AllowedHeader can not have more than one wildcard.")
    return {
        "id": child_text(one, "ID"),
        "methods": methods,
        "origins": origins,
        "headers": headers,
        "exposed": child_texts(one, "ExposeHeader"),
        "max_age_s": None if age is None else int(age),
    }


def _rule_element(rule: Rule) -> Element:
    age = rule["max_age_s"]
    return element(
        "CORSRule",
        element("ID", rule["id"]) if rule["id"] else None,
        *elements("AllowedMethod", rule["methods"]),
        *elements("AllowedOrigin", rule["origins"]),
        *elements("AllowedHeader", rule["headers"]),
        *elements("ExposeHeader", rule["exposed"]),
        None if age is None else element("MaxAgeSeconds", str(age)),
    )


def _any_matches(patterns: Sequence[str], text: str) -> bool:
    escaped = (pattern.replace("[", "[[]").replace("?", "[?]") for pattern in patterns)
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in escaped)
