"""Where our answers differ from Swift's on purpose, or by what Swift itself leaves to chance: each with its reason.

A disagreement is explained if every part of it is. What is not explained fails the tests.
"""

import dataclasses
import re

from testkit.swift_scenarios.recording import Disagreement


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
        "A manifest that is no list is a bad request; Swift fails on it.",
        r"status: 500 Internal Error → 400 Bad Request|body: 'An error occurred' → .*",
        area="static large objects",
        request="PUT .*/c/refused.*multipart-manifest=put.*",
    ),
    Known(
        "A dynamic large object that matches keeps its type and length; Swift forgets them.",
        r"(accept-ranges|content-length|content-type): .*",
        area="dynamic large objects",
        request="GET .*If-Match.*",
    ),
    Known(
        "A PUT with a wrong ETag has no Last-Modified; Swift gives the time it would have had.",
        r"last-modified: <date> → \(none\)",
        area="objects|objects of two replicas|products: spellings",
        request="PUT .*E[Tt]ag.*",
    ),
    Known(
        "More than 50 ranges are refused; Swift counts only those that lie within the object.",
        ".*",
        area="ranges",
        request=r"GET .*bytes=0-0,1-1,2-2,.*",
    ),
    Known(
        "Which form a listing has depends on Accept, and Vary says so; Swift's listings of versions do not.",
        r"vary: \(none\) → Accept",
        area="object versioning|products: .*",
    ),
    Known(
        "Quotas count what the container holds now; Swift counts from a cache of up to a minute.",
        ".*",
        area="quotas",
        request="(PUT|COPY|HEAD) .*/c.*",
    ),
    Known(
        "There is neither container sync nor a limit of rates, so `/info` names neither.",
        r"body: '.*\"container_sync\".*\"ratelimit\".*' → '.*",
        area="policies of containers",
        request="GET /info.*",
    ),
    Known(
        "Ranges are read of an object; Swift reads ranges of fragments, and refuses those of which too many overlap.",
        r"status: 416 .* → 206 .*|content-range: .* → \(none\)|content-type: .* → multipart.*|body: .*",
        area="objects in fragments",
        request="GET .*Range: bytes=3-4,1048574-1048577,-3.*",
    ),
)


def unexplained_parts(disagreement: Disagreement) -> list[str]:
    """The parts of a disagreement that no rule covers."""
    return [part for part in disagreement.parts if not any(known.covers(disagreement, part) for known in KNOWN)]


def reasons(disagreement: Disagreement) -> list[str]:
    """Why the stores differ."""
    return [known.reason for known in KNOWN if any(known.covers(disagreement, part) for part in disagreement.parts)]
