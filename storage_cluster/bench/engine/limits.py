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
