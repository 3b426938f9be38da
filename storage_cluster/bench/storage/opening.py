"""From what a workload says of its store to one that can be used; the door for other kinds of store."""

import dataclasses

from storage_cluster.bench.engine.connection import Timeouts
from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.model import AuthConfig, StorageConfig
from storage_cluster.bench.storage.protocol import Storage
from storage_cluster.bench.storage.swift import Access, Credentials, Swift

STORAGE_KINDS = ("swift",)
AUTH_KINDS = ("swauth", "tempauth", "none")
INSTEAD = "give --cluster or --auth URL to put this load on a Swift store instead"


@dataclasses.dataclass(frozen=True)
class Login:
    """Store and credentials that stand in for those of a workload."""

    credentials: Credentials


async def open_storage(storage: StorageConfig, auth: AuthConfig, timeouts: Timeouts, login: Login | None) -> Storage:
    """A store that requests can be put to. Raises: WorkloadError, NotRunningError."""
    patience, timeouts = timeouts_of(auth, timeouts), timeouts_of(storage, timeouts)
    policy = _policy(storage)
    if login is not None:
        return await Swift.login(login.credentials, timeouts=timeouts, auth_timeouts=patience, policy=policy)
    check(storage, auth)
    if auth.kind == "none":
        access = Access(storage.option("storage_url"), storage.option("token"))
        return Swift(access, timeouts=timeouts, policy=policy)
    user, key = auth.option("username"), auth.option("password")
    credentials = Credentials(auth.option("auth_url") or auth.option("url"), user, key)
    return await Swift.login(credentials, timeouts=timeouts, auth_timeouts=patience, policy=policy)


def check(storage: StorageConfig, auth: AuthConfig) -> None:
    """Say now that a workload's store cannot be used. Raises: WorkloadError."""
    if storage.kind not in STORAGE_KINDS:
        raise WorkloadError(f"{storage.where}storage {storage.kind!r} is not supported (only swift is)", INSTEAD)
    if auth.kind not in AUTH_KINDS:
        raise WorkloadError(f"{auth.where}auth {auth.kind!r} is not supported (only {', '.join(AUTH_KINDS)})", INSTEAD)
    if auth.kind == "none" and not storage.option("storage_url"):
        raise WorkloadError(f"{storage.where}neither an auth URL nor a storage URL is given", INSTEAD)
    if auth.kind != "none" and not (auth.option("auth_url") or auth.option("url")):
        raise WorkloadError(f"{auth.where}the auth URL (auth_url) is missing", INSTEAD)


def _policy(storage: StorageConfig) -> str:
    return storage.option("policy") if storage.kind == "swift" else ""


def timeouts_of(config: StorageConfig, timeouts: Timeouts) -> Timeouts:
    """COSBench's one timeout, in ms, is for connecting and for reading."""
    given = config.option("timeout")
    return Timeouts(int(given) / 1000, int(given) / 1000) if given else timeouts
