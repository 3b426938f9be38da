"""The cluster's errors, as the command line reports them."""

import contextlib
from collections.abc import Iterator

from storage_cluster.errors import ClusterError, NotPermittedError, NotRunningError
from tracer.errors import PrivilegeError, ResourceError, ServiceError


@contextlib.contextmanager
def operator_errors() -> Iterator[None]:
    """Turn the cluster's errors into those that the command line prints in one line."""
    try:
        yield
    except NotPermittedError as error:
        raise PrivilegeError(error.what, error.next_step) from None
    except NotRunningError as error:
        raise ServiceError(error.what, error.next_step) from None
    except ClusterError as error:
        raise ResourceError(error.what, error.next_step) from None
