"""Ways to a host: words of a command line that run a program there, such as `docker exec -i web1`.

That is all that a recording asks of a way, so that one more is one more function here. `ssh` takes one text, for the
login shell there; the others take the program's words. Each name is checked: one that looks like an option is refused,
and it stands behind `--` all the same.
"""

import shlex
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from tracer.errors import InputError, MissingDependencyError
from tracer.segments import check_name

CONNECT_SECONDS = 10

SSH_OPTIONS = {
    "BatchMode": "yes",  # no password and no passphrase is asked for, nor is a host key accepted
    "ConnectTimeout": str(CONNECT_SECONDS),
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",  # a connection that is silent for 15 s is broken
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "RemoteCommand": "none",
    "PermitLocalCommand": "no",
}
"""What a recording needs; everything else is as the operator's `~/.ssh/config` says. Source: ssh_config(5)."""


class Way(Struct, frozen=True):
    """How to run a program on a host."""

    host: str
    """Its name in the trace."""
    kind: str
    """ssh, kubectl, docker, nsenter or here."""
    target: str
    """As the operator gave it."""
    prefix: tuple[str, ...]
    takes_text: bool = False
    """The program's words are to be one text, for a shell."""

    def argv(self, words: Sequence[str]) -> list[str]:
        """The command line that runs these words there."""
        return [*self.prefix, f"exec {shlex.join(words)}"] if self.takes_text else [*self.prefix, *words]

    def by_hand(self) -> str:
        """A command by which the operator can try the way."""
        return shlex.join([*self.prefix, "true"]) if self.kind != "ssh" else f"ssh {self.target} true"


def ssh_way(given: str, config: Path | None = None) -> Way:
    """`[NAME=][USER@]HOST`, or an ssh:// URL; a name of `~/.ssh/config` too. `config`: read instead of that.

    Raises: InputError for what is no host.
    """
    name, target = _split_name(given)
    host = name or target.removeprefix("ssh://").rpartition("@")[2].partition("/")[0]
    if target.startswith("ssh://") and not name:
        host = host.rpartition(":")[0] or host
    options = [word for option, value in SSH_OPTIONS.items() for word in ("-o", f"{option}={value}")]
    file = ("-F", str(config)) if config else ()
    prefix = ("ssh", "-T", *file, *options, "--", target)
    return Way(check_name("host", host.strip("[]").replace(":", "-")), "ssh", target, prefix, takes_text=True)


def kubectl_way(given: str) -> Way:
    """`[NAME=][NAMESPACE/]POD[/CONTAINER]`, in the current context. Raises: InputError."""
    name, target = _split_name(given)
    parts = target.split("/")
    if len(parts) > 3 or not all(parts) or any(part.startswith("-") for part in parts):
        raise InputError(f"{target!r} is no pod", "give NAMESPACE/POD or NAMESPACE/POD/CONTAINER")
    place = ("--namespace", parts[0]) if len(parts) > 1 else ()
    pod, container = parts[min(len(parts), 2) - 1], parts[2:]
    inside = ("--container", container[0]) if container else ()
    prefix = ("kubectl", "exec", "--stdin", "--quiet", *place, *inside, pod, "--")
    return Way(check_name("host", name or pod), "kubectl", target, prefix)


def docker_way(given: str) -> Way:
    """`[NAME=]CONTAINER`. Raises: InputError."""
    name, target = _split_name(given)
    return Way(check_name("host", name or target), "docker", target, ("docker", "exec", "-i", "--", target))


def nsenter_way(given: str) -> Way:
    """`[NAME=]PID`, or the name of a namespace as `ip netns` has it: its network, and the files of this machine.

    Raises: InputError.
    """
    name, target = _split_name(given)
    net = f"/proc/{target}/ns/net" if target.isdecimal() else f"/run/netns/{check_name('namespace', target)}"
    host = name or (f"pid-{target}" if target.isdecimal() else target)
    return Way(check_name("host", host), "nsenter", target, ("nsenter", f"--net={net}", "--"))


def here_way(name: str) -> Way:
    """This machine. Raises: InputError for a name that is none."""
    return Way(check_name("host", name), "here", name, ())


WAYS: dict[str, Callable[[str], Way]] = {"kubectl": kubectl_way, "docker": docker_way, "nsenter": nsenter_way}
"""Those that take a name and nothing else."""


def check_ways(ways: Iterable[Way]) -> tuple[Way, ...]:
    """The ways, each host's once.

    Raises: InputError if two hosts have one name; MissingDependencyError for a program that is not here.
    """
    by_name: dict[str, Way] = {}
    for way in ways:
        other = by_name.setdefault(way.host, way)
        if other != way:
            what = f"two hosts would be called {way.host}: {other.target} and {way.target}"
            raise InputError(what, f"name one of them: --{way.kind} NAME={way.target}")
        if way.prefix and shutil.which(way.prefix[0]) is None:
            raise MissingDependencyError(f"--{way.kind} needs {way.prefix[0]}, which is not here", "install it")
    return tuple(by_name.values())


def _split_name(given: str) -> tuple[str, str]:
    """Name and target of `[NAME=]TARGET`. Raises: InputError for a target that a program would take as an option."""
    name, sign, target = given.rpartition("=")
    name, target = (name, target) if sign and "=" not in name and not given.startswith("-") else ("", given)
    if not target or target.startswith("-") or any(not sign.isprintable() or sign.isspace() for sign in target):
        raise InputError(f"{given!r} is no host", "give its name, as you would type it after ssh")
    return name, target
