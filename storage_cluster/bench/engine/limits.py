"""How many connections this process may have."""

import resource

from storage_cluster.errors import MissingResourceError

CONNECTIONS_MAX = 4096
_OTHER_DESCRIPTORS = 64  # files, the loop, the standard streams


def allow_connections(count: int) -> None:
    """Raise the limit on open files so that `count` connections fit. Raises: MissingResourceError."""
    needed = count + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, max(hard, needed) if hard >= 0 else hard))
    except (ValueError, OSError):
        raise MissingResourceError(
            f"{count:,} connections need {needed:,} open files, and only {hard:,} are allowed",
            f"run: ulimit -n {needed}, or use fewer workers",
        ) from None


class Allowance:
    """How many connections may be open at once, as a program's limit on open files would have it."""

    def __init__(self, count: int) -> None:
        """`count`: 0 for as many as are wanted."""
        self._left = count if count else None

    def take(self) -> bool:
        """Take one; False if all are taken."""
        if self._left is None:
            return True
        if not self._left:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """One is closed."""
        if self._left is not None:
            self._left += 1
