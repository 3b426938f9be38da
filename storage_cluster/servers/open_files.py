"""Raises the limit on this process's open files and connections.

A login session usually allows 1,024 at first and many more on request. A proxy has two to four connections for each
request that is under way, and a server up to six files for each account or container in use.
"""

import resource


def allow_all() -> None:
    """Raise the limit on open files as far as this process may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
