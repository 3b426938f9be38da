"""Reads what is stored from the storage servers themselves: every replica of every object, and every listing."""

import dataclasses
import hashlib
import itertools
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from benchmarks.fault_run.clients import Answer, ask
from benchmarks.fault_run.objects import History
from storage_cluster import ring as rings
from storage_cluster.erasure import Code, code_of
from storage_cluster.policies import POLICY_INDEX, ring_name
from storage_cluster.ring import Ring
from storage_cluster.servers.disks import fragments
from storage_cluster.topology import Device, Topology

THREADS = 6
POLL_S = 0.5
_INDEX, _SIZE = fragments.INDEX.lower(), fragments.SIZE.lower()
_MOMENT = "x-backend-data-timestamp"
_S3_ETAG = "x-object-sysmeta-s3-etag"  # of a manifest: the ETag of the object that it stands for


@dataclasses.dataclass(frozen=True)
class Replica:
    """One object on one device: its ETag by what came over the wire, "" if there is none, "?…" if unknown.

    Of a fragment: that of the bytes which it gives with each sufficient set of the others; "damaged" if not all agree.
    """

    device: Device
    etag: str


class Verifier:
    """Asks the replicas of one container's objects."""

    def __init__(self, topology: Topology, state_dir: Path, account: str, container: str, policy: int = 0) -> None:
        """`policy`: the container's storage policy."""
        self._policy = policy
        self._code = code_of(topology.policies, policy)
        self._topology = topology
        self._rings = rings.load(state_dir / "data" / rings.FILE_NAME)
        self._account = account
        self._container = container

    def settle(self, histories: Sequence[History], patience_s: float) -> tuple[float, list[str]]:
        """Wait until all replicas agree and listings are complete; how long it took, and what is still wrong."""
        begin_s = time.monotonic()
        left = list(histories)
        while True:
            left = [history for history in left if self.object_faults(history)] if len(left) < 50 else self._many(left)
            listing = self.listing_faults(histories) if not left else []
            took_s = time.monotonic() - begin_s
            if not left and not listing:
                return took_s, []
            if took_s > patience_s:
                return took_s, [fault for history in left for fault in self.object_faults(history)] + listing
            time.sleep(POLL_S)

    def object_faults(self, history: History) -> list[str]:
        """What is wrong with an object's replicas on their own devices."""
        found = self._replicas(history.name)
        allowed = history.allowed_etags()
        if {replica.etag for replica in found} <= allowed and len({replica.etag for replica in found}) == 1:
            return []
        shown = ", ".join(f"{r.device.host}/{r.device.name}: {self._describe(history, r.etag)}" for r in found)
        wanted = " or ".join(self._describe(history, etag) for etag in sorted(allowed))
        return [f"{history.name} should be {wanted}; is {shown}"]

    def is_lost(self, history: History) -> bool:
        """Whether no device at all, handoffs included, holds what was acknowledged."""
        held = {replica.etag for replica in self._replicas(history.name, handoffs=True)}
        return not held & history.allowed_etags()

    def listing_faults(self, histories: Iterable[History]) -> list[str]:
        """Where a container replica's listing differs from what is stored."""
        must = {h.name for h in histories if "" not in h.allowed_etags()}
        may = {h.name for h in histories if h.allowed_etags() != {""}}
        faults = []
        for device, names in self._listings():
            if names is None:
                faults.append(f"the listing on {device.host}/{device.name} cannot be had")
                continue
            missing, strange = sorted(must - names), sorted(names - may)
            if missing:
                faults.append(f"the listing on {device.host}/{device.name} lacks {len(missing)}: {missing[:3]}")
            if strange:
                faults.append(f"the listing on {device.host}/{device.name} has {len(strange)} too many: {strange[:3]}")
        return faults

    def _many(self, histories: Sequence[History]) -> list[History]:
        with ThreadPoolExecutor(THREADS) as pool:
            faults = pool.map(self.object_faults, histories)
            return [history for history, found in zip(histories, faults, strict=True) if found]

    def _replicas(self, name: str, *, handoffs: bool = False) -> list[Replica]:
        ring = self._rings[ring_name(self._policy)]
        partition = ring.partition(self._account, self._container, name)
        devices = [*ring.primaries(partition), *(ring.handoffs(partition) if handoffs else ())]
        answers = {device: self._ask("object", device, partition, name) for device in devices}
        return [Replica(device, self._etag(answer, answers.values())) for device, answer in answers.items()]

    def _etag(self, answer: Answer, answers: Iterable[Answer]) -> str:
        """What an answer says, of a fragment together with those of the other devices."""
        if answer.status == 404:
            return ""
        if answer.status != 200:
            return f"? {answer.status or answer.error}"
        if self._code is not None:
            return self._decoded_etag(self._code, answer, answers)
        return answer.headers.get(_S3_ETAG) or hashlib.md5(answer.body, usedforsecurity=False).hexdigest()

    @staticmethod
    def _decoded_etag(code: Code, answer: Answer, answers: Iterable[Answer]) -> str:
        """The ETag of what a fragment gives with others of its version."""
        same = {
            int(one.headers[_INDEX]): one.body
            for one in answers
            if one.status == 200 and one.headers[_MOMENT] == answer.headers[_MOMENT]
        }
        own, size = int(answer.headers[_INDEX]), int(answer.headers[_SIZE])
        sets = [chosen for chosen in itertools.combinations(sorted(same), code.data_fragments) if own in chosen]
        found = {_decode(code, {index: same[index] for index in chosen}, size) for chosen in sets}
        return found.pop() if len(found) == 1 else "? too few fragments" if not found else "damaged"

    def _listings(self) -> list[tuple[Device, set[str] | None]]:
        ring: Ring = self._rings["container"]
        partition = ring.partition(self._account, self._container)
        found: list[tuple[Device, set[str] | None]] = []
        for device in ring.primaries(partition):
            names: set[str] | None = set()
            marker = ""
            while names is not None:
                answer = self._ask("container", device, partition, query=f"?format=json&marker={quote(marker)}")
                if answer.status not in (200, 204):
                    names = None
                    break
                page = [entry["name"] for entry in json.loads(answer.body or b"[]")]
                if not page:
                    break
                names |= set(page)
                marker = page[-1]
            found.append((device, names))
        return found

    def _ask(self, service_name: str, device: Device, partition: int, name: str = "", query: str = ""):
        service = self._topology.service(service_name, device.host)
        path = "/".join((device.name, str(partition), self._account, self._container, *([name] if name else [])))
        headers = {POLICY_INDEX: str(self._policy)}
        return ask(service.address, service.port, "GET", f"/{quote(path)}{query}", headers=headers)

    @staticmethod
    def _describe(history: History, etag: str) -> str:
        if not etag:
            return "absent"
        version = history.version_of(etag)
        return f"version {version}" if version is not None else etag if etag.startswith("?") else "DAMAGED"


def _decode(code: Code, archives: Mapping[int, bytes], size: int) -> str:
    """The ETag of an object of so many bytes from some of its archives, by index."""
    md5, at = hashlib.md5(usedforsecurity=False), 0
    for number in range(-(-size // code.segment_bytes)):
        length = code.fragment_len(code.segment_len(number, size))
        parts = {index: archive[at : at + length] for index, archive in archives.items()}
        at += length
        if not all(code.is_sound(part, index) for index, part in parts.items()):
            return "damaged"
        md5.update(code.decode(list(parts.values())))
    return md5.hexdigest()
