"""What is run on a host for each plan: the script, what it is sent, and how it shows that it captures."""

from collections.abc import Sequence

from msgspec import Struct

from collector.remote import scripts
from collector.remote.preflight import AGENT, SLL2_LIBPCAP, HostFacts, Method, Plan
from collector.remote.session import Session
from tracer import _capture, secret_rules
from tracer.errors import ServiceError

START_SECONDS = 20
"""Longest time until it captures; it takes a round trip, and the sending of 2 MB."""
BEAT = b"\n"
"""Sent every `BEAT_SECONDS`, so that a host notices a connection that is gone without an end."""
BEAT_SECONDS = 5.0
READY = ("ready ", "tcpdump: listening on ")
"""Beginnings of the lines by which the agent and tcpdump report that they capture."""
OWNERS = {"users": (), "processes": ("--processes",), "none": ("--no-owners",)}
"""What the agent is given; nothing for what it does anyway, so that one of an earlier build still understands it."""
COOKED_HEADER_LEN = 20
TCPDUMP_BUFFER_KIB = 32 << 10

Endpoint = tuple[str, int]


class StartOptions(Struct, frozen=True):
    """What all hosts have in common. `excluded`: ends of our own connections, as the hosts see them."""

    payload: str = "heads"
    excluded: tuple[Endpoint, ...] = ()
    owners: str = "users"  # as --owners of `tracer capture`


def start(session: Session, facts: HostFacts, plan: Plan, options: StartOptions) -> None:
    """Start the capture; then its stream can be read. Raises: ServiceError with what the host said."""
    rules = secret_rules.choice()
    given = agent_arguments(session.way.host, plan, options, len(rules.more.encode()), rules.are_kept)
    match plan.method:
        case Method.TCPDUMP:
            script = scripts.tcpdump(tcpdump_words(facts, plan, options))
            whole_by_sudo = plan.by_sudo and facts.sudo == "all"
        case Method.INSTALLED:
            script, whole_by_sudo = scripts.installed_agent(facts.agent, given), plan.by_sudo
        case Method.SENT:
            program = AGENT.read_bytes()
            script, whole_by_sudo = scripts.sent_agent(facts.folder, len(program), given), plan.by_sudo
    session.run(scripts.as_root(scripts.with_token(script, session.token)) if whole_by_sudo else script)
    if plan.method is Method.SENT:
        session.wait_for("send")
        session.send(program)
    session.wait_for("stream")
    if plan.method is not Method.TCPDUMP:
        session.send(rules.more.encode())
    if session.wait_for_error_line(READY, START_SECONDS) is None:
        said = session.last_words().removeprefix("error ") or "it printed nothing"
        raise ServiceError(f"{session.way.host} does not capture: {said}", f"to look: {session.way.by_hand()}")


def agent_arguments(host: str, plan: Plan, options: StartOptions, rules_len: int, keeps_secrets: bool) -> list[str]:
    """The agent's command line (`tracer/core/agent/src/arguments.rs`)."""
    words = [word for interface in plan.interfaces for word in ("--interface", interface.name)]
    words += ["--host", host, "--payload", options.payload, "--rules-len", str(rules_len)]
    for address, port in options.excluded:
        words += ["--exclude", f"[{address}]:{port}" if ":" in address else f"{address}:{port}"]
    words += OWNERS[options.owners]
    return [*words, "--keep-secrets"] if keeps_secrets else words


def tcpdump_words(facts: HostFacts, plan: Plan, options: StartOptions) -> list[str]:
    """tcpdump's command line. All interfaces as one, where each packet carries its own; else the one."""
    is_cooked = is_from_all_interfaces(facts)
    words = [*(("sudo", "-n") if plan.by_sudo and facts.sudo == "tcpdump" else ()), facts.tcpdump]
    words += ["-i", "any", "-y", "LINUX_SLL2"] if is_cooked else ["-i", plan.interfaces[0].name]
    snaplen = _capture.payload_snaplen(options.payload) + COOKED_HEADER_LEN
    words += ["-w", "-", "-U", "--immediate-mode", "-n", "-p", "-s", str(snaplen), "-B", str(TCPDUMP_BUFFER_KIB)]
    return [*words, "--time-stamp-precision=nano", filter_expression(options.excluded)]


def is_from_all_interfaces(facts: HostFacts) -> bool:
    """Whether tcpdump there writes frames that carry their interface."""
    return facts.libpcap >= SLL2_LIBPCAP


def filter_expression(excluded: Sequence[Endpoint]) -> str:
    """All TCP but these connections, as pcap-filter(7) has it."""
    return " and ".join(["tcp", *(f"not (host {address} and tcp port {port})" for address, port in excluded)])
