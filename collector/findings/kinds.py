"""The kinds of findings: each once, with what it can cause, by what it is known, and when it is reported.

From this registry follow the families that `diagnosis.py` runs, the order of causes (`causes.py`), which findings a
hole in a capture puts in doubt (`captures.py`), which texts show the host's usage (`usage.py`), and the table in
docs/diagnosis.md (`python -m collector.findings.kinds` prints it). The judgement itself is in the module of the kind's
family.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType

from msgspec import Struct


class Evidence(Enum):
    """By what a finding is known."""

    PRESENCE = "packets, messages or counters that show it"
    ABSENCE = "packets that were not seen, or the length of a silence: only a complete capture shows that"


class Kind(Struct, frozen=True):
    """A kind of finding."""

    name: str
    family: str  # of `FAMILIES`
    reported_when: str  # as docs/diagnosis.md says it
    can_cause: frozenset[str] = frozenset()  # the kinds that it can cause
    evidence: Evidence = Evidence.PRESENCE
    of_service: bool = False  # about one service: it causes nothing at others of its host, unless they call that one
    always_notice: bool = False  # worth knowing, but never a reason to act
    explained_there_only: bool = False  # by a cause at the same host or path, not by one at a host that it calls
    shows_usage: bool = False  # its text adds what the host used at that time (`usage.py`)


FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "network": "links",
        "stalls": "stalls",
        "ports": "ports",
        "connections": "connections",
        "answers": "answers",
        "missing": "replicas",
        "tls_handshakes": "TLS",
        "endings": "endings",
        "pace": "pace",
        "placement": "places",
        "background": "background",
        "usage": "usage",
        "kernel_counters": "kernel counters",
        "captures": "captures",
        "clocks": "clocks",
    }
)
"""Each module that judges, with its title in docs/diagnosis.md. Its function `find` takes `Observations`, and the group
of `Thresholds` of the same name if there is one, and returns findings."""

BROKEN = frozenset(
    {
        "client_gave_up",
        "connection_reset",
        "incomplete_exchange",
        "missing_replica",
        "truncated_response",
        "unanswered_request",
    }
)
"""Requests that are not answered, or not whole."""
UNCONNECTED = frozenset({"connection_unanswered", "port_reuse", "syn_retry"})
"""Connections that come late or never."""
SLOW = frozenset({"handoffs", "host_starved", "slow_disk", "slow_replica", "uneven_load"})
"""A server or device that is slower than its peers, or is spared because of that."""
SILENT = frozenset({"server_died", "server_silent"})
"""A server that answers nothing."""
LATE = frozenset({"narrow_link", "packet_loss", "reordering", "slow_link"})
"""Packets that are late, or come only when sent again."""
FAILED = frozenset({"disk_full", "server_error"})
"""Requests answered with a failure."""
LISTEN = frozenset({"listen_drops", "listen_queue_full"})
"""Connections that a full listen queue turned away."""
RESENT = frozenset({"fast_retransmission", "retransmission_timeout", "tail_loss"})
"""Data that was sent again."""
HELD = frozenset({"small_window", "zero_window"})
"""Senders that wait because a receiver does not read."""
AWAY = frozenset({"slow_start_after_idle", "small_window"})
"""Waits for round trips, which matter only on a long path."""
CLOCK = frozenset({"inconsistent_clock", "unaligned_clock"})
"""Clocks that could not be compared."""
UNANSWERED = frozenset({"slow_replica"})
"""A server that does not answer is not slow: if it looks slow by the requests given up, its silence is the cause."""

KINDS = (
    Kind(
        name="link_down",
        family="network",
        reported_when=(
            "all packets of a link, or of all of a host's, are lost for half a second or more, while both captures run"
        ),
        can_cause=BROKEN | UNCONNECTED | SLOW | SILENT | LATE | FAILED | LISTEN | CLOCK | RESENT | HELD,
        evidence=Evidence.ABSENCE,
    ),
    Kind(
        name="narrow_link",
        family="network",
        reported_when=(
            "packets queue and arrive one after the other at a constant rate, or the link carries a constant rate in "
            "slice after slice, whatever load is offered; that rate times the wait is one packet or more"
        ),
        can_cause=BROKEN | UNCONNECTED | SLOW | SILENT | LATE | LISTEN | RESENT | AWAY,
        explained_there_only=True,
    ),
    Kind(
        name="server_died",
        family="endings",
        reported_when=(
            "a server's side ended two connections or more at one moment, each with FIN or RST instead of an answer, "
            "however long each had waited, and answered nothing in between; or ended one, and its port refused the "
            "next connection within 10 s, with no answer in between"
        ),
        can_cause=BROKEN | UNCONNECTED | SLOW | FAILED | frozenset({"connection_refused"}),
        of_service=True,
    ),
    Kind(
        name="server_silent",
        family="answers",
        reported_when=(
            "a server answered nothing, and said nothing in a stream, for a second or more while several requests "
            "waited, and its kernel acknowledged; likewise the greeting of a server that speaks first (MySQL, SMTP, "
            "FTP), and its word to send the rest of a request; in a protocol that cannot be read: turns of several "
            "connections, if nearly all others were answered in a quarter of that time or less"
        ),
        can_cause=BROKEN | UNCONNECTED | SLOW | SILENT | FAILED | LISTEN | HELD,
        of_service=True,
        evidence=Evidence.ABSENCE,
        shows_usage=True,
    ),
    Kind(
        name="connection_refused",
        family="connections",
        reported_when="SYNs were answered with RST",
        can_cause=BROKEN | UNCONNECTED | SLOW | SILENT | FAILED,
        of_service=True,
    ),
    Kind(
        name="tls_handshake_failed",
        family="tls_handshakes",
        reported_when=(
            "a fatal alert ended a TLS handshake (unknown CA, no cipher suite in common, a version that is not "
            "accepted); in TLS 1.3 a client's is encrypted, so that it was sent is reported and not why"
        ),
        can_cause=BROKEN,
        of_service=True,
    ),
    Kind(
        name="damaged_packets",
        family="network",
        reported_when=(
            "data came to the receiver's capture with a wrong TCP checksum and came again: a cable, port or card "
            "flips bits. Judged only for packets captured whole (an agent checks them as they arrive, and marks "
            "them), at a receiver where most other checksums are right; such a packet was not delivered, so its hop "
            "is `lost`, and the wait is that for the copy ([`damaged.py`](../collector/hops/damaged.py))"
        ),
        can_cause=BROKEN | UNCONNECTED | SLOW | SILENT | LISTEN | RESENT | frozenset({"packet_loss"}),
    ),
    Kind(
        name="packet_loss",
        family="network",
        reported_when="data was lost; the cost is the time that connections waited for the copies",
        can_cause=BROKEN | UNCONNECTED | SLOW | LISTEN | RESENT,
        evidence=Evidence.ABSENCE,
        explained_there_only=True,
    ),
    Kind(
        name="dropped_in_host",
        family="network",
        reported_when=(
            "data reached a host's capture and was sent again, and the host's own ACKs in between show that its TCP "
            "had not received it: a firewall, a full buffer, a bad checksum "
            "([`host_drops.py`](../collector/hops/host_drops.py))"
        ),
        can_cause=BROKEN | SLOW | SILENT | RESENT,
        evidence=Evidence.ABSENCE,
    ),
    Kind(
        name="reordering",
        family="network",
        reported_when="more than 1 % of data packets are overtaken by later ones",
        can_cause=BROKEN | SLOW | LATE | RESENT,
        evidence=Evidence.ABSENCE,
        explained_there_only=True,
    ),
    Kind(
        name="slow_link",
        family="network",
        reported_when="even the link's lowest delays are high: eight times those of the usual link",
        can_cause=BROKEN | UNCONNECTED | SLOW | LISTEN | AWAY | frozenset({"narrow_link", "reordering"}),
        explained_there_only=True,
    ),
    Kind(
        name="host_starved",
        family="pace",
        reported_when="several services of a host are slow, its kernel is not",
        can_cause=BROKEN | UNCONNECTED | SLOW | SILENT | FAILED | LISTEN | HELD,
        shows_usage=True,
    ),
    Kind(
        name="slow_disk",
        family="pace",
        reported_when="one of several devices of a server is slow (where the target names it: `services.toml`)",
        can_cause=BROKEN | SLOW | SILENT | FAILED | LISTEN | HELD,
        shows_usage=True,
    ),
    Kind(
        name="listen_queue_full",
        family="connections",
        reported_when="SYNs (or a handshake's last ACK) arrived, and the kernel answered only later ones",
        can_cause=BROKEN | UNCONNECTED | SLOW | LISTEN,
        of_service=True,
        evidence=Evidence.ABSENCE,
        shows_usage=True,
    ),
    Kind(
        name="listen_drops",
        family="kernel_counters",
        reported_when=(
            "the host's kernel counted connections that its full listen queues turned away; connections of that host "
            "and time that were never answered follow from it"
        ),
        can_cause=BROKEN | UNCONNECTED | SLOW,
    ),
    Kind(
        name="zero_window",
        family="stalls",
        reported_when=(
            "a receiver's window was full for longer than two round trips: its process reads late, or not at all; a "
            "warning from 500 ms on if the sender's first probe did not end it, or if such waits are three quarters "
            "of all request time"
        ),
        can_cause=BROKEN | SLOW | frozenset({"small_window"}),
        of_service=True,
        evidence=Evidence.ABSENCE,
        shows_usage=True,
    ),
    Kind(
        name="port_exhaustion",
        family="ports",
        reported_when=(
            "within 60 s a client used nine of ten ports of its range for one server's port: the range is the default "
            "of Linux, or is inferred if every port between the lowest and the highest was used"
        ),
        can_cause=FAILED | SLOW | frozenset({"port_reuse"}),
    ),
    Kind(
        name="port_reuse",
        family="connections",
        reported_when=(
            "SYNs arrived from ports of a connection that had ended less than 60 s before, and were not accepted at "
            "once"
        ),
        can_cause=FAILED | SLOW,
        of_service=True,
        evidence=Evidence.ABSENCE,
        explained_there_only=True,
    ),
    Kind(
        name="connection_unanswered",
        family="connections",
        reported_when=(
            "SYNs were never answered; also if they reached the host and its kernel accepted none at all: a firewall "
            "there, or a queue that was always full"
        ),
        can_cause=FAILED | SLOW,
        of_service=True,
        evidence=Evidence.ABSENCE,
        explained_there_only=True,
    ),
    Kind(
        name="truncated_response",
        family="endings",
        reported_when=(
            "the server closed before the length that the answer's head had declared, or before the last chunk or frame"
        ),
        can_cause=FAILED | frozenset({"truncated_response", "connection_reset"}),
        of_service=True,
    ),
    Kind(
        name="unanswered_request",
        family="answers",
        reported_when=(
            "a request was not answered by the end of the capture; or the server closed the connection instead of "
            "answering (`endings.py`); or the request was sent on a kept connection that the server had closed "
            "already"
        ),
        can_cause=FAILED | SLOW,
        of_service=True,
        evidence=Evidence.ABSENCE,
    ),
    Kind(
        name="client_gave_up",
        family="endings",
        reported_when=(
            "the client left first, without a complete answer. A warning if several requests were left after the same "
            "wait, which is the client's limit (five or more, if as many of its requests were answered there after a "
            "longer wait), or if at least half of the client's requests there waited in vain; a "
            "notice if it stopped answers that were being sent, or left all requests at one moment (the client "
            "ended); an info if another call of the same request had been answered for most of its last wait, and the "
            "request succeeded. The finding says if the server answered nobody meanwhile; if the server looks slow "
            "because of abandoned requests, that finding follows from this one"
        ),
        can_cause=FAILED | UNANSWERED | frozenset({"client_gave_up"}),
        of_service=True,
    ),
    Kind(
        name="disk_full",
        family="answers",
        reported_when="a server answered 507: its disk is full",
        can_cause=BROKEN | frozenset({"server_error", "slow_disk", "handoffs", "uneven_load"}),
    ),
    Kind(
        name="server_error",
        family="answers",
        reported_when=(
            "a server answered with an error of its own (HTTP's 500 and more, `status_class` `server_error`). A device "
            "that fails at once is broken; if it also looks slow, that finding follows from this one"
        ),
        can_cause=BROKEN | frozenset({"server_error", "slow_disk", "handoffs", "uneven_load"}),
        of_service=True,
    ),
    Kind(
        name="slow_replica",
        family="pace",
        reported_when=(
            "one service of a host is slow against the other servers of that service: those shown to be its replicas "
            "([how](linking.md#how-services-are-named)), or nodes of one store"
        ),
        can_cause=BROKEN | SLOW | LISTEN | HELD,
        shows_usage=True,
    ),
    Kind(
        name="syn_retry",
        family="connections",
        reported_when=(
            "SYNs or their answers were lost, and sent again; if there are few, severity follows from the time that "
            "clients waited for them"
        ),
        evidence=Evidence.ABSENCE,
        explained_there_only=True,
    ),
    Kind(
        name="port_scan",
        family="connections",
        reported_when=(
            "one host tried 20 ports or more that refused or did not answer, most of them once or twice: a scan, "
            "reported once for all ports ([`scans.py`](../collector/findings/scans.py))"
        ),
        always_notice=True,
    ),
    Kind(
        name="small_window",
        family="stalls",
        reported_when=("the window was full, or closed, for a round trip or two only: it is too small for the path"),
        evidence=Evidence.ABSENCE,
        explained_there_only=True,
    ),
    Kind(
        name="delayed_ack",
        family="stalls",
        reported_when=(
            "a small piece of a message waited for the ACK of the one before (Nagle), which the receiver delayed by "
            "30 to 510 ms, at a sender that otherwise sends no small piece behind an unacknowledged one"
        ),
        evidence=Evidence.ABSENCE,
    ),
    Kind(
        name="slow_start_after_idle",
        family="stalls",
        reported_when=("a connection idle for 200 ms or more waits for ACKs with fewer bytes in flight than before"),
        evidence=Evidence.ABSENCE,
        explained_there_only=True,
    ),
    Kind(
        name="retransmission_timeout",
        family="stalls",
        reported_when="lost data was sent again by a timer although later bytes had arrived",
        evidence=Evidence.ABSENCE,
        explained_there_only=True,
    ),
    Kind(
        name="tail_loss",
        family="stalls",
        reported_when="the last bytes of a message were lost: no later bytes could reveal the loss",
        evidence=Evidence.ABSENCE,
        explained_there_only=True,
    ),
    Kind(
        name="fast_retransmission",
        family="stalls",
        reported_when="lost data was sent again as soon as the ACKs of later bytes revealed the loss",
        evidence=Evidence.ABSENCE,
        explained_there_only=True,
    ),
    Kind(
        name="head_of_line",
        family="stalls",
        reported_when=(
            "a request was whole at the server while it still sent the response to the one before on that connection"
        ),
        evidence=Evidence.ABSENCE,
    ),
    Kind(
        name="connection_reset",
        family="endings",
        reported_when="the server's side broke a request off with a RST",
        evidence=Evidence.ABSENCE,
    ),
    Kind(
        name="missing_replica",
        family="missing",
        reported_when=(
            "a replica answered 404 for an object that another one had: one request asked both for the same object, "
            "and no request changed it in between"
        ),
    ),
    Kind(
        name="host_saturated",
        family="usage",
        reported_when=(
            "processes of a host waited for a processor for 80 % of three seconds or more, and on the other hosts for "
            "at most half as much"
        ),
        always_notice=True,
    ),
    Kind(
        name="disk_saturated",
        family="usage",
        reported_when=(
            "a disk was busy for 80 % of three seconds or more, and on the other hosts for at most half as much"
        ),
        always_notice=True,
    ),
    Kind(
        name="handoffs",
        family="placement",
        reported_when=(
            "writes meant for a host went to others that replaced it: they began after a connection was refused or "
            "not answered, or a request failed, or `--ring DIR` shows whose they are"
        ),
        always_notice=True,
    ),
    Kind(
        name="uneven_load",
        family="placement",
        reported_when="a server got twice as many clients' requests as its peers; and the finding says for what",
        always_notice=True,
    ),
    Kind(
        name="clock_offset",
        family="clocks",
        reported_when="a clock was wrong by 10 ms or 100 ppm",
    ),
    Kind(
        name="clock_step",
        family="clocks",
        reported_when="a clock was set during the capture",
    ),
    Kind(
        name="unaligned_clock",
        family="clocks",
        reported_when="a clock could not be converted to the common timescale",
        explained_there_only=True,
    ),
    Kind(
        name="slower_beside_background",
        family="background",
        reported_when=(
            "requests that a host served for clients took half as long again, or more, while background work was "
            "under way there, than at other times, and longer than just before and just after in so many of the "
            "stretches that chance explains it once in twenty traces (it says while, not because)"
        ),
        always_notice=True,
        shows_usage=True,
    ),
    Kind(
        name="inconsistent_clock",
        family="clocks",
        reported_when=(
            "no offset and drift fit all packets of a host, so its times are good only to an uncertainty that the "
            "finding names"
        ),
        explained_there_only=True,
    ),
    Kind(
        name="capture_drop",
        family="captures",
        reported_when=(
            "a capture missed packets, by its own count, by what was acknowledged, or by holes in streams that go on "
            "behind them (a warning from 0.2 % on)"
        ),
    ),
    Kind(
        name="incomplete_exchange",
        family="captures",
        reported_when="an exchange lies at the capture's edge, or is otherwise incomplete",
    ),
    Kind(
        name="absurd_stamps",
        family="captures",
        reported_when=(
            "packets whose stamps are a year or more from all others of their host; it names file and frame. They are "
            "paired nevertheless, but their delays mean nothing, and clocks are compared without them "
            "([`absurd_stamps.py`](../collector/decode/absurd_stamps.py))"
        ),
    ),
    Kind(
        name="agent_silent",
        family="captures",
        reported_when=(
            "a collector has had no report of an agent for 30 s when it makes the trace, and the agent did not end"
        ),
    ),
)
"""All kinds. Those that cause others come first, and among these root causes before symptoms."""
OF_NAME: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in KINDS})
ORDER: Mapping[str, int] = MappingProxyType({kind.name: place for place, kind in enumerate(KINDS)})


def table_lines() -> Iterator[str]:
    """The table of docs/diagnosis.md, in Markdown: by family, then in the order of causes."""
    yield "| family | kind | is reported when |"
    yield "|---|---|---|"
    for family, title in FAMILIES.items():
        first = f" {title} (`{family}.py`)"
        for kind in KINDS:
            if kind.family == family:
                notice = " (always a notice)" if kind.always_notice else ""
                yield f"|{first} | `{kind.name}` | {kind.reported_when}{notice} |"
                first = ""


if __name__ == "__main__":
    print("\n".join(table_lines()))
