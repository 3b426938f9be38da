"""Errors, classified by who must act.

1. Bad input (a cut packet, a truncated file) never raises: it is a value, a named count (a counter of the collector).
2. The operator's: one exception from the tree below. The command line prints it plainly and exits 2.
3. Ours: an assertion, never caught.

    TracerError                 what happened, and what to do next
    ├── InputError              a file or URL given by the user cannot be used
    ├── PrivilegeError          the kernel refused; names the privilege and how to get it
    ├── ResourceError           disk full, port in use, interface missing
    │   └── DiskFullError       of these, what may be better when something is deleted
    ├── ServiceError            a collector or cluster that does not answer as expected
    └── MissingDependencyError  a part that is not installed; names the command that installs it
"""

from tracer.plain_text import plain


class TracerError(Exception):
    """An error that the operator can mend.

    Arguments: `what` happened and where, in one clause; `next_step`, what to do about it. Both may quote what others
    wrote: control characters become escapes.
    """

    def __init__(self, what: str, next_step: str = "") -> None:
        super().__init__(what)
        self.what = plain(what)
        self.next_step = plain(next_step)

    def __str__(self) -> str:
        return f"{self.what}; {self.next_step}" if self.next_step else self.what


class InputError(TracerError):
    """A file or URL given by the user cannot be used."""


class PrivilegeError(TracerError):
    """The kernel refused an operation."""


class ResourceError(TracerError):
    """Disk full, port in use, interface missing."""


class DiskFullError(ResourceError):
    """No space, or no quota, where something is to be written."""


class ServiceError(TracerError):
    """A collector or a cluster does not answer as expected."""


class MissingDependencyError(TracerError):
    """A part of the system, or a library, is not installed."""
