"""`/info`: the features and limits of this store, for clients that adapt to them.

Source: Swift API, "Discoverability"; sections and names as Swift 2.30.1 gives them.
"""

import json
from collections.abc import Mapping

from storage_cluster.policies import Policies
from storage_cluster.servers.http import limits
from storage_cluster.servers.http.listings import LIMIT_MAX
from storage_cluster.servers.proxy import bulk_delete, bulk_extract, slo_manifest, symlink, tempurl, versions
from storage_cluster.servers.proxy.signatures import DIGESTS

SWIFT_VERSION = "2.30.1"
"""The Swift whose behaviour is followed."""

_DIGESTS = {"allowed_digests": DIGESTS, "deprecated_digests": ("sha1",)}


def document(policies: Policies) -> bytes:
    """The answer to `/info`."""
    swift = {**_DOCUMENT["swift"], "policies": policies.document()}
    return json.dumps(_DOCUMENT | {"swift": swift}).encode()


_DOCUMENT: dict[str, Mapping[str, object]] = {
    "swift": {
        "version": SWIFT_VERSION,
        "strict_cors_mode": True,
        "allow_account_management": True,
        "account_autocreate": True,
        "max_file_size": limits.FILE_MAX_BYTES,
        "max_meta_name_length": limits.META_NAME_MAX_BYTES,
        "max_meta_value_length": limits.META_VALUE_MAX_BYTES,
        "max_meta_count": limits.META_COUNT_MAX,
        "max_meta_overall_size": limits.META_SUM_MAX_BYTES,
        "max_header_size": limits.HEADER_MAX_BYTES,
        "max_object_name_length": limits.OBJECT_NAME_MAX_LEN,
        "container_listing_limit": LIMIT_MAX,
        "account_listing_limit": LIMIT_MAX,
        "max_account_name_length": limits.ACCOUNT_NAME_MAX_LEN,
        "max_container_name_length": limits.CONTAINER_NAME_MAX_LEN,
        "extra_header_count": 0,
    },
    "formpost": _DIGESTS,
    "staticweb": {},
    "tempauth": {"account_acls": True},
    "tempurl": {
        "methods": tempurl.METHODS,
        "incoming_remove_headers": tuple(name.lower() for name in tempurl.INCOMING_REMOVED),
        "incoming_allow_headers": (),
        "outgoing_remove_headers": ("x-object-meta-*",),
        "outgoing_allow_headers": ("x-object-meta-public-*",),
        **_DIGESTS,
    },
    "slo": {
        "max_manifest_segments": slo_manifest.SEGMENTS_MAX,
        "max_manifest_size": slo_manifest.MANIFEST_MAX_BYTES,
        "yield_frequency": 10,
        "min_segment_size": 1,
        "allow_async_delete": False,
    },
    "symlink": {"symloop_max": symlink.LEVELS_MAX, "static_links": True},
    "versioned_writes": {"allowed_flags": tuple(name.lower() for name in versions.LOCATIONS)},
    "object_versioning": {},
    "account_quotas": {},
    "container_quotas": {},
    "bulk_upload": {
        "max_containers_per_extraction": bulk_extract.CONTAINERS_MAX,
        "max_failed_extractions": bulk_extract.FAILURES_MAX,
    },
    "bulk_delete": {
        "max_deletes_per_request": bulk_delete.DELETES_MAX,
        "max_failed_deletes": bulk_delete.FAILURES_MAX,
    },
}
