"""Rules in the kernel's packet filter, by `nft`: one table per namespace, replaced whole at each change."""

import functools
import shutil
import subprocess
from collections.abc import Sequence

from storage_cluster.faults.kinds import FaultError
from storage_cluster.hosts import namespaces

_TABLE = "twintap"


def replace(pid: int, family: str, chains: Sequence[str]) -> None:
    """Replace our table in the namespace of `pid` with these chains. Raises: FaultError."""
    program = shutil.which("nft") or shutil.which("nft", path="/usr/sbin:/sbin")
    if program is None:
        raise FaultError("this fault needs `nft`, which is not installed", "install nftables")
    table = f"{family} {_TABLE}"
    text = f"table {table} {{\n}}\ndelete table {table}\n"  # the first line, so that there is one to delete
    if chains:
        text += "\n".join([f"table {table} {{", *chains, "}"]) + "\n"
    enter = functools.partial(namespaces.enter, pid, "net")
    done = subprocess.run(
        [program, "-f", "-"], input=text, capture_output=True, text=True, check=False, preexec_fn=enter
    )
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if "Error" in line), done.stderr.strip())
        raise FaultError(f"the kernel refused a packet filter rule ({reason})", "it needs nf_tables")


def chain(hook: str, rules: Sequence[str]) -> str:
    """A chain of rules at a hook (`forward`, `input`)."""
    lines = [f" chain {hook} {{", f"  type filter hook {hook} priority 0", *(f"  {rule}" for rule in rules), " }"]
    return "\n".join(lines)
