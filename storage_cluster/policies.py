"""Storage policies: in which ring, and in how many replicas or fragments, the objects of a container are kept.

A container has a policy from the moment it is made, and keeps it. The policy's index is in the name of its ring
(`object`, `object-1`) and of its directories on the devices (`objects`, `objects-1`), and goes with every request to an
object server (`X-Backend-Storage-Policy-Index`).

Source: Swift, "Storage Policies"; swift.common.storage_policy.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

POLICY_INDEX = "X-Backend-Storage-Policy-Index"
"""The policy of a request to an object server, and the one that a container has or is to have; absent: 0."""
POLICY_DEFAULT = "X-Backend-Storage-Policy-Default"
"""The policy of a container that is made without one being asked for."""

REPLICATION = "replication"
"""The kind of a policy whose devices each hold the whole object …"""
ERASURE_CODING = "erasure_coding"
"""… and of one whose devices each hold a fragment of it (`erasure`)."""

FRAGMENTS_MAX = 32
"""What liberasurecode can do."""


class PolicyError(ValueError):
    """Policies that cannot be; the message says why."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """One policy."""

    name: str = "Policy-0"
    index: int = 0
    replicas: int = 0
    """0: those of the topology's [ring]."""
    aliases: tuple[str, ...] = ()
    default: bool = False
    """Of containers for which none is asked for."""
    deprecated: bool = False
    """No new container may have it."""
    kind: str = REPLICATION
    data_fragments: int = 0
    """Of erasure coding: fragments that an object is read from …"""
    parity_fragments: int = 0
    """… and those beyond them, so many of which may be lost."""
    segment_bytes: int = 1_048_576
    """Of erasure coding: what is coded at once. What is stored was coded with it, so it must not change."""

    @property
    def names(self) -> tuple[str, ...]:
        """All its names."""
        return (self.name, *self.aliases)

    @property
    def fragment_count(self) -> int:
        """How many fragments of an object there are; 0 of replicas."""
        return self.data_fragments + self.parity_fragments


class Policies(tuple[Policy, ...]):
    """The policies of a store, by index."""

    __slots__ = ()

    @property
    def default(self) -> Policy:
        """The policy of containers for which none is asked for."""
        return next((policy for policy in self if policy.default), self[0])

    @property
    def have_fragments(self) -> bool:
        """Whether one of them is erasure coding."""
        return any(policy.kind == ERASURE_CODING for policy in self)

    def at(self, index: int) -> Policy | None:
        """The policy of that index; None if there is none."""
        return next((policy for policy in self if policy.index == index), None)

    def by_name(self, name: str) -> Policy | None:
        """The policy of that name, in whatever case; None if there is none."""
        return next((policy for policy in self if name.lower() in map(str.lower, policy.names)), None)

    def document(self) -> list[dict[str, object]]:
        """What `/info` says of those that a new container may have."""
        return [
            {"name": policy.name, "aliases": ", ".join(policy.names)}
            | ({"default": True} if policy is self.default else {})
            for policy in self
            if not policy.deprecated
        ]


ONE = Policies((Policy(),))
"""Those of a store that has one policy."""


def parse(entries: Sequence[Mapping[str, Any]]) -> Policies:
    """The policies of a topology; one of replicas if it names none. Raises: PolicyError, TypeError."""
    policies = Policies(
        Policy(**{"index": number} | dict(entry) | {"aliases": tuple(entry.get("aliases", ()))})
        for number, entry in enumerate(entries)
    )
    if not policies:
        return ONE
    names = [name.lower() for policy in policies for name in policy.names]
    if len(set(names)) < len(names) or len({policy.index for policy in policies}) < len(policies):
        raise PolicyError("two policies have the same name or index")
    if policies.at(0) is None:
        raise PolicyError("one policy must have the index 0: containers made without policies have it")
    if sum(policy.default for policy in policies) > 1 or policies.default.deprecated:
        raise PolicyError("one policy is the default, and that is not deprecated")
    for policy in policies:
        _check(policy)
    return policies


def _check(policy: Policy) -> None:
    """Raises: PolicyError for a policy that cannot be."""
    if policy.index < 0 or policy.replicas < 0:
        raise PolicyError(f"{policy.name}: index and replicas are numbers from 0 on")
    if policy.kind == ERASURE_CODING:
        if policy.replicas:
            raise PolicyError(f"{policy.name}: an object has fragments or replicas, not both")
        counts = policy.data_fragments, policy.parity_fragments
        if min(*counts, policy.segment_bytes) < 1 or policy.fragment_count > FRAGMENTS_MAX:
            raise PolicyError(
                f"{policy.name}: {ERASURE_CODING} needs data_fragments, parity_fragments and segment_bytes from 1 on, "
                f"and {FRAGMENTS_MAX} fragments at most"
            )
    elif policy.kind != REPLICATION:
        raise PolicyError(f"{policy.name}: kind is {REPLICATION!r} or {ERASURE_CODING!r}")
    elif policy.fragment_count:
        raise PolicyError(f"{policy.name}: fragments need kind = {ERASURE_CODING!r}")


def ring_name(index: int) -> str:
    """The name of a policy's object ring."""
    return f"object-{index}" if index else "object"


def policy_index(ring: str) -> int:
    """The policy of an object ring of that name."""
    return int(ring.partition("-")[2] or 0)


def directory_name(index: int) -> str:
    """The name of a policy's directory on each device; `policy_index` takes it, too."""
    return f"objects-{index}" if index else "objects"
