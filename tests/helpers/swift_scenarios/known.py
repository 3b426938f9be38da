"""Where our answers differ from Swift's on purpose, or by what Swift itself leaves to chance: each with its reason.

A disagreement is explained if every part of it is. What is not explained fails the tests.
"""

import dataclasses
import re

from tests.helpers.swift_scenarios.recording import Disagreement


@dataclasses.dataclass(frozen=True)
class Known:
    """A rule: areas, requests and parts (`what: wanted → got`) that it covers, as regular expressions."""

    reason: str
    part: str
    area: str = ".*"
    request: str = ".*"

    def covers(self, disagreement: Disagreement, part: str) -> bool:
        """Whether this explains a part of a disagreement."""
        found = (disagreement.area, disagreement.wanted.request, part)
        rules = (self.area, self.request, self.part)
        return all(re.fullmatch(rule, text, re.DOTALL) for rule, text in zip(rules, found, strict=True))


KNOWN = (
    Known(
        "Every reply of ours names a Content-Type; Swift's preflights and form redirects have none.",
        r"content-type: \(none\) → text/html.*|content-length: \d+ → \(none\)",
        area="CORS|FormPost",
    ),
    Known(
        "Metadata that is no UTF-8 is refused for objects as it is for accounts and containers; Swift stores it.",
        ".*",
        area="metadata limits",
        request="POST .*/c/o .*X-Object-Meta-Uni: caf\xe9.*",
    ),
    Known(
        "A manifest that is no list is a bad request; Swift fails on it.",
        r"status: 500 Internal Error → 400 Bad Request|body: 'An error occurred' → .*",
        area="static large objects",
        request="PUT .*/c/refused.*multipart-manifest=put.*",
    ),
    Known(
        "Quotas count what the container holds now; Swift counts from a cache of up to a minute.",
        ".*",
        area="quotas",
        request="(PUT|COPY|HEAD) .*/c.*",
    ),
)


def unexplained(disagreement: Disagreement) -> list[str]:
    """The parts of a disagreement that no rule covers."""
    return [part for part in disagreement.parts if not any(known.covers(disagreement, part) for known in KNOWN)]


def reasons(disagreement: Disagreement) -> list[str]:
    """Why the stores differ."""
    return [known.reason for known in KNOWN if any(known.covers(disagreement, part) for part in disagreement.parts)]
