"""Errors of the cluster as a whole; the commands print them as one line for the operator."""


class ClusterError(Exception):
    """An error that the operator can correct: `what` happened, and what to do next."""

    def __init__(self, what: str, next_step: str) -> None:
        super().__init__(f"{what}; {next_step}")
        self.what = what
        self.next_step = next_step


class NotPermittedError(ClusterError):
    """The kernel does not allow this user to make hosts (network namespaces)."""


class MissingResourceError(ClusterError):
    """Something on this machine is missing or in use: a program, a kernel module, a directory."""


class NotRunningError(ClusterError):
    """No cluster is up, or a server of it does not answer."""
