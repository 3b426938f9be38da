"""Errors of the cluster as a whole; the commands print them as one line for the operator."""


class ClusterError(Exception):
    """Something the operator can mend: `what` happened, and what to do next."""

    def __init__(self, what: str, next_step: str) -> None:
        super().__init__(f"{what}; {next_step}")
        self.what = what
        self.next_step = next_step


class NotPermittedError(ClusterError):
    """The kernel does not let this user make hosts (network namespaces)."""


class MissingResourceError(ClusterError):
    """Something on this machine is missing or taken: a program, a kernel module, a directory."""


class NotRunningError(ClusterError):
    """No cluster is up, or a server of it does not answer."""
