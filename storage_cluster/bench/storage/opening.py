"""From what a workload says of its store to one that can be used; the door for other kinds of store."""

import dataclasses
from typing import Any

from storage_cluster.bench.engine.connection import Timeouts
from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.model import AuthConfig, StorageConfig
from storage_cluster.bench.storage.protocol import Storage
from storage_cluster.bench.storage.s3 import S3
from storage_cluster.bench.storage.s3_options import read_options
from storage_cluster.bench.storage.swift import Access, Credentials, Swift

STORAGE_KINDS = ("swift", "s3")
AUTH_KINDS = ("swauth", "tempauth", "none")
INSTEAD = "give --cluster or --auth URL to put this load on a Swift store instead, or --s3 URL for an S3 store"


@dataclasses.dataclass(frozen=True)
class Login:
    """Store and credentials that stand in for those of a workload: of a Swift account, or an S3 store's options."""

    credentials: Credentials | StorageConfig

    def dump(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self.credentials)

    @classmethod
    def load(cls, dumped: dict[str, Any]) -> "Login":
        """What `dump` gave. Raises: KeyError, TypeError if it is something else."""
        if "kind" not in dumped:
            return cls(Credentials(**dumped))
        options = tuple((str(name), str(value)) for name, value in dumped["options"])
        return cls(StorageConfig(dumped["kind"], options, dumped["where"]))


async def open_storage(storage: StorageConfig, auth: AuthConfig, timeouts: Timeouts, login: Login | None) -> Storage:
    """A store that requests can be put to. Raises: WorkloadError, NotRunningError."""
    patience, timeouts = timeouts_of(auth, timeouts), timeouts_of(storage, timeouts)
    policy = _policy(storage)
    if login is not None:
        if isinstance(login.credentials, StorageConfig):
            return S3(read_options(login.credentials), timeouts)
        return await Swift.login(login.credentials, timeouts=timeouts, auth_timeouts=patience, policy=policy)
    check(storage, auth)
    if storage.kind == "s3":
        return S3(read_options(storage), timeouts)
    if auth.kind == "none":
        access = Access(storage.option("storage_url"), storage.option("token"))
        return Swift(access, timeouts=timeouts, policy=policy)
    user, key = auth.option("username"), auth.option("password")
    credentials = Credentials(auth.option("auth_url") or auth.option("url"), user, key)
    return await Swift.login(credentials, timeouts=timeouts, auth_timeouts=patience, policy=policy)


def check(storage: StorageConfig, auth: AuthConfig) -> None:
    """Say now that a workload's store cannot be used. Raises: WorkloadError."""
    if storage.kind not in STORAGE_KINDS:
        known = " and ".join(STORAGE_KINDS)
        raise WorkloadError(f"{storage.where}storage {storage.kind!r} is not supported (only {known} are)", INSTEAD)
    if auth.kind not in AUTH_KINDS:
        raise WorkloadError(f"{auth.where}auth {auth.kind!r} is not supported (only {', '.join(AUTH_KINDS)})", INSTEAD)
    if storage.kind == "s3":
        if auth.kind != "none":
            raise WorkloadError(f"{auth.where}auth {auth.kind} is for Swift; S3's is none", INSTEAD)
        read_options(storage)
    elif auth.kind == "none" and not storage.option("storage_url"):
        raise WorkloadError(f"{storage.where}neither an auth URL nor a storage URL is given", INSTEAD)
    if auth.kind != "none" and not (auth.option("auth_url") or auth.option("url")):
        raise WorkloadError(f"{auth.where}the auth URL (auth_url) is missing", INSTEAD)


def _policy(storage: StorageConfig) -> str:
    return storage.option("policy") if storage.kind == "swift" else ""


def timeouts_of(config: StorageConfig, timeouts: Timeouts) -> Timeouts:
    """COSBench's one timeout, in ms, is for connecting and for reading."""
    given = config.option("timeout")
    return Timeouts(int(given) / 1000, int(given) / 1000) if given else timeouts
