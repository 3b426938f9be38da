"""The bundled cluster as a place to put load on from: its client host, and its own store."""

import sys
from urllib.parse import urlsplit

from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.model import StorageConfig, Workload
from storage_cluster.bench.storage.opening import STORAGE_KINDS, Login
from storage_cluster.bench.storage.swift import Credentials
from storage_cluster.errors import NotRunningError
from storage_cluster.hosts import cluster
from storage_cluster.hosts.cluster import ClusterStatus
from storage_cluster.hosts.state import default_state_dir


def names_its_store(workload: Workload, on_cluster: bool) -> bool:
    """Whether the file gives the store's address, or names a store of another kind."""
    works = [work for stage in workload.stages for work in stage.works]
    addresses = ("storage_url", "endpoint")
    named = any(work.auth.kind != "none" or any(map(work.storage.option, addresses)) for work in works)
    return not on_cluster and (named or any(work.storage.kind not in STORAGE_KINDS for work in works))


def is_of_cluster(workload: Workload, login: Login | None) -> bool:
    """Whether the S3 stores that a file or the command names are servers of the cluster that is up.

    Their addresses exist only on the cluster's hosts.
    """
    storages = {work.storage for stage in workload.stages for work in stage.works}
    if login is not None:
        storages = {login.credentials} if isinstance(login.credentials, StorageConfig) else set()
    hosts = {urlsplit(storage.option("endpoint")).hostname for storage in storages}
    try:
        addresses = {address for host in cluster.status(default_state_dir()).hosts for address in host.addresses}
    except NotRunningError:
        return False
    return bool(hosts) and hosts <= addresses


def on_client_host() -> ClusterStatus:
    """The cluster that is up, once this process is on its client host; otherwise it becomes one that is."""
    running = cluster.status(default_state_dir())
    client = running.host(running.client_host)
    if not cluster.inside(client):
        cluster.execute(default_state_dir(), client.host, (sys.executable, *sys.argv))
    return running


def store_of(running: ClusterStatus, workload: Workload) -> Login:
    """The cluster's own store: its S3 gateway for an S3 workload, with that one's options. Raises: WorkloadError."""
    storages = [work.storage for stage in workload.stages for work in stage.works]
    if all(storage.kind == "s3" for storage in storages):
        if not running.s3:
            raise WorkloadError("the cluster that is up has no S3 gateway", "give --s3 URL, or a Swift workload")
        gateway = running.s3[0]
        own = {"endpoint": gateway.url, "access_key": gateway.access_key, "secret_key": gateway.secret_key}
        return Login(StorageConfig("s3", tuple((dict(storages[0].options) | own).items())))
    found = running.environment
    return Login(Credentials(found["ST_AUTH"], found["ST_USER"], found["ST_KEY"]))
