"""Whether a reservation can be kept: what it takes of each device, beside what is promised there already.

    rate, direction ──▶ which devices, how much of each ──▶ fits at every moment from start to end? ──▶ claims, or no

1. A device's time is its resource, since reading and writing share it: a rate takes rate × (1 / bandwidth + positioning
   / stripe) of it, as the medium's profile states (`disks/medium.py`). At most the share `reservable` is promised. A
   stripe for each `window_s` is added to each rate: only so is it kept in each such stretch of time.
2. A read is of an object: its pieces lie on devices that the ring names, and each gives its pieces' share of the rate.
   With several replicas the piece is read from the one that `reading_order` puts first.
3. A write is to a bucket, and nobody knows where its objects will lie: so each device promises the whole rate. Where
   one cannot, the rate is spread: each device promises its part of what all replicas together need, and the gateway
   deals the parts of multipart uploads out to the devices in turn.
4. Space: each device promises its part, by weight, of all replicas of the bytes; at most `reservable` of its size.
   Buckets without reserved space may hold what every device has room for beside all that is promised from now on.

Limits: links, processors and the gateway are not counted. A spread write of a single PUT is on one device, so it gets
that device's part. Space is counted by expectation: where the ring puts more on one device, that one is full earlier.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from storage_cluster.ring import Ring
from storage_cluster.servers.disks.medium import Profile, profile_of
from storage_cluster.servers.reservations.claims import MB, READ, AccessReservation, SpaceReservation, format_time
from storage_cluster.topology import Device, Topology

MIB = 1 << 20
SHARE_MIN = 0.02
"""Of a rate, on a device that holds little more than the list of an object's parts, which each request reads."""

_ROUNDING = 0.001


class NotAdmittedError(Exception):
    """The reservation does not fit; the message says where, what is free there, and from when on it would fit."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """What one reservation takes of one device."""

    place: str
    start_s: float
    end_s: float
    busy: float = 0.0  # share of the device's time
    bytes: float = 0.0


@dataclasses.dataclass(frozen=True)
class Capacity:
    """What a device has to give."""

    place: str
    profile: Profile | None
    size_bytes: int
    space_share: float  # of all objects' bytes, replicas counted


class Admission:
    """Decides, given what is promised already."""

    def __init__(self, topology: Topology, ring: Ring, promised: Iterable[Claim]) -> None:
        self._options = topology.reservations
        self._replicas = topology.ring.replicas
        self._capacities = {each.place: each for each in capacities(topology, ring)}
        self._promised: dict[str, list[Claim]] = {place: [] for place in self._capacities}
        for claim in promised:
            self._promised.setdefault(claim.place, []).append(claim)

    @property
    def places(self) -> list[str]:
        """All devices."""
        return list(self._capacities)

    def space(self, asked: SpaceReservation, unreserved_bytes: int = 0) -> list[Claim]:
        """What a space reservation takes, beside what buckets without one hold already. Raises: NotAdmittedError."""
        claims = [self._space_claim(asked, capacity) for capacity in self._capacities.values()]
        self._check(claims, dict.fromkeys(self._capacities, asked.base_mb_per_s), unreserved_bytes)
        return claims

    def unreserved_bytes(self, now_s: float) -> int | None:
        """What buckets without reserved space may hold altogether; None if no space is reserved."""
        if not any(claim.bytes for claims in self._promised.values() for claim in claims):
            return None
        room = [
            (each.size_bytes - self._peak(Claim(each.place, now_s, math.inf), now_s, "bytes")) / each.space_share
            for each in self._capacities.values()
            if each.space_share
        ]
        return max(0, int(min(room, default=0.0)))

    def read(
        self, asked: AccessReservation, pieces: Sequence[tuple[str, int]]
    ) -> tuple[AccessReservation, list[Claim]]:
        """A read of an object whose pieces are (HOST/DEVICE, bytes). Raises: NotAdmittedError."""
        total = sum(size for _, size in pieces)
        shares: dict[str, float] = {}
        for place, size in pieces:
            shares[place] = shares.get(place, 0.0) + (size / total if total else 1 / len(pieces))
        return self._admit(asked, {place: asked.mb_per_s * max(share, SHARE_MIN) for place, share in shares.items()})

    def write(self, asked: AccessReservation) -> tuple[AccessReservation, list[Claim]]:
        """A write to a bucket. Raises: NotAdmittedError."""
        try:
            return self._admit(asked, dict.fromkeys(self._capacities, asked.mb_per_s))
        except NotAdmittedError as refused:
            part = asked.mb_per_s * self._replicas / len(self._capacities)
            if part >= asked.mb_per_s:
                raise
            try:
                spread = dataclasses.replace(asked, is_spread=True)
                return self._admit(spread, dict.fromkeys(self._capacities, part))
            except NotAdmittedError as also:
                raise NotAdmittedError(f"{refused}; nor when it is spread over all devices: {also}") from None

    def _admit(
        self, asked: AccessReservation, rates_mb_per_s: Mapping[str, float]
    ) -> tuple[AccessReservation, list[Claim]]:
        claims = [
            Claim(place, asked.start_s, asked.end_s, self._busy(place, rate, is_read=asked.direction == READ))
            for place, rate in rates_mb_per_s.items()
        ]
        self._check(claims, rates_mb_per_s)
        rates = {place: math.ceil(rate * MB) for place, rate in rates_mb_per_s.items()}
        return dataclasses.replace(asked, rates=rates), claims

    def _space_claim(self, asked: SpaceReservation, capacity: Capacity) -> Claim:
        busy = 0.0
        if asked.base_mb_per_s:
            busy = max(self._busy(capacity.place, asked.base_mb_per_s, is_read=is_read) for is_read in (True, False))
        size = asked.bytes * capacity.space_share
        return Claim(capacity.place, asked.start_s, asked.end_s, busy, size)

    def _busy(self, place: str, mb_per_s: float, *, is_read: bool) -> float:
        """The share of a device's time that a rate takes. Raises: NotAdmittedError."""
        capacity = self._capacities.get(place)
        if capacity is None:
            raise NotAdmittedError(f"{place} is not in the topology, so it states no throughput")
        if capacity.profile is None:
            raise NotAdmittedError(f"{place} states no throughput (media none), so none can be reserved there")
        rate = mb_per_s * MB + self._options.margin_bytes_per_s
        return capacity.profile.busy_s(rate, self._options.stripe_bytes, is_read=is_read)

    def _check(self, claims: Sequence[Claim], rates_mb_per_s: Mapping[str, float], unreserved_bytes: int = 0) -> None:
        for claim in claims:
            self._check_busy(claim, rates_mb_per_s[claim.place])
            self._check_bytes(claim, unreserved_bytes)

    def _check_busy(self, claim: Claim, mb_per_s: float) -> None:
        if not claim.busy:
            return
        limit = self._options.reservable
        if self._fits(claim, claim.start_s, limit, "busy"):
            return
        free = limit - self._peak(claim, claim.start_s, "busy")
        margin = self._options.margin_bytes_per_s / MB
        left = max(0.0, free / claim.busy * (mb_per_s + margin) - margin)
        text = f"{claim.place} has {left:.1f} MB/s left of the {mb_per_s:.1f} asked of it"
        raise NotAdmittedError(text + self._until(claim) + self._from_when(claim, limit, "busy"))

    def _check_bytes(self, claim: Claim, unreserved_bytes: int) -> None:
        if not claim.bytes:
            return
        capacity = self._capacities[claim.place]
        not_held = capacity.size_bytes - unreserved_bytes * capacity.space_share
        limit = min(self._options.reservable * capacity.size_bytes, not_held)
        if self._fits(claim, claim.start_s, limit, "bytes"):
            return
        free = max(0.0, limit - self._peak(claim, claim.start_s, "bytes"))
        text = f"{claim.place} has {free / MB:.1f} MB left of the {claim.bytes / MB:.1f} asked of it"
        raise NotAdmittedError(text + self._until(claim) + self._from_when(claim, limit, "bytes"))

    @staticmethod
    def _until(claim: Claim) -> str:
        return f" from {format_time(claim.start_s)} to {format_time(claim.end_s)}"

    def _fits(self, claim: Claim, start_s: float, limit: float, what: str) -> bool:
        taken: float = getattr(claim, what)
        return self._peak(claim, start_s, what) + taken <= limit * (1 + _ROUNDING)

    def _peak(self, claim: Claim, start_s: float, what: str) -> float:
        """The most that is promised at any moment of a claim that begins then."""
        end_s = start_s + claim.end_s - claim.start_s
        others = [each for each in self._promised[claim.place] if each.start_s < end_s and start_s < each.end_s]
        moments = [start_s, *(each.start_s for each in others if each.start_s > start_s)]
        return max(
            sum(getattr(each, what) for each in others if each.start_s <= moment < each.end_s) for moment in moments
        )

    def _from_when(self, claim: Claim, limit: float, what: str) -> str:
        ends = sorted({each.end_s for each in self._promised[claim.place] if each.end_s > claim.start_s})
        found = next((end_s for end_s in ends if self._fits(claim, end_s, limit, what)), None)
        return "; it never has so much" if found is None else f"; there is room from {format_time(found)} on"


def capacities(topology: Topology, ring: Ring) -> list[Capacity]:
    """What each device of the topology has to give."""
    weights = {place_of(device): device.weight for device in ring.devices}
    total = sum(weights.values()) or 1.0
    made = []
    for device in topology.devices:
        place, disk = place_of(device), topology.host(device.host).disk(device.name)
        profile = profile_of(disk.media, disk.read_bytes_per_s, disk.write_bytes_per_s)
        share = topology.ring.replicas * weights.get(place, 0.0) / total
        made.append(Capacity(place, profile, disk.size_mib * MIB, share))
    return made


def place_of(device: Device) -> str:
    """A device's name in reservations: HOST/DEVICE."""
    return f"{device.host}/{device.name}"
