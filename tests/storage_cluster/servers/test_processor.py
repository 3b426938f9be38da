"""The modelled processor: how long a process stands still, and what is counted as busy."""

import asyncio
from pathlib import Path

import pytest

from storage_cluster.servers.disks import audit
from storage_cluster.servers.processor import Processor, busy_ns


class Own:
    """What a process has used so far, as the test says."""

    def __init__(self) -> None:
        self.used_ns = 5_000_000
        self.slept: list[float] = []

    def processor(self, file: Path) -> Processor:
        return Processor(2, 0.008, file, self.slept.append, lambda: self.used_ns, s_per_byte=4e-9)


def test_a_request_costs_what_its_process_has_not_used_itself(tmp_path: Path) -> None:
    own = Own()
    modelled = own.processor(tmp_path / "proxy.processor")
    modelled.spend()
    own.used_ns += 2_000_000
    modelled.spend()
    assert own.slept == pytest.approx([0.004, 0.003])  # of two cores as one that is twice as fast
    assert busy_ns(tmp_path) == 8_000_000
    modelled.close()


def test_a_body_costs_by_its_length_and_own_use_counts_once(tmp_path: Path) -> None:
    own = Own()
    modelled = own.processor(tmp_path / "proxy.processor")
    modelled.spend()
    own.used_ns += 3_000_000
    modelled.spend_on_body(1_000_000)  # 4 ms, 3 of them used
    own.used_ns += 2_000_000
    modelled.spend()  # 8 ms, 2 of them used
    own.used_ns += 5_000_000
    modelled.spend_on_body(1_000_000)  # 4 ms, all of them used, and one more
    modelled.spend()
    assert own.slept == pytest.approx([0.004, 0.0005, 0.003, 0.0035])
    assert busy_ns(tmp_path) == 16_000_000
    modelled.close()


def test_a_process_that_has_used_more_does_not_stand_still(tmp_path: Path) -> None:
    own = Own()
    modelled = own.processor(tmp_path / "object.processor")
    own.used_ns += 20_000_000
    modelled.spend()
    assert (own.slept, busy_ns(tmp_path)) == ([], 10_000_000)
    other = own.processor(tmp_path / "container.processor")
    other.spend()
    assert busy_ns(tmp_path) == 14_000_000
    assert busy_ns(tmp_path / "none") == 0


def test_an_audit_reads_at_its_pace_and_no_faster_than_the_medium(monkeypatch: pytest.MonkeyPatch) -> None:
    now, streams, pauses = [100.0], list[int](), list[float]()

    class Slow:
        def read(self, size_bytes: int, stream: int) -> float:
            streams.append(stream)
            if len(streams) == 2:
                raise OSError
            return 0.5 if len(streams) == 3 else 0.01

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(audit.asyncio, "sleep", sleep)
    asyncio.run(audit.audit(Slow(), 10, lambda: now[0], count=4))
    assert pauses == pytest.approx([0.1, 0.1, 0.5, 0.1])
    assert len(set(streams)) == 4
