"""The faults of this machine's cluster, as marks on a run's time axis (`storage_cluster.faults.log`)."""

from storage_cluster.bench.results.folder import Mark
from storage_cluster.errors import ClusterError
from storage_cluster.faults import log
from storage_cluster.hosts.state import default_state_dir


def fault_marks(from_ns: int, to_ns: int) -> tuple[Mark, ...]:
    """The faults that were in force between two times of the wall clock; none if their record cannot be read."""
    try:
        records = log.read(default_state_dir())
    except (ClusterError, OSError):
        return ()
    return tuple(
        Mark("fault", record.fault.text(), record.started_ns, record.ended_ns or 0)
        for record in records
        if record.started_ns is not None and record.started_ns < to_ns and (record.ended_ns or to_ns) > from_ns
    )
