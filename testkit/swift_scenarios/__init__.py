"""Requests of the Swift API, by area: asked of a store under test and of OpenStack Swift, whose answers are recorded.

They are written from the API reference and the documentation of each feature. A scenario is a function that asks a
`Site`; it begins with an empty account.
"""

from collections.abc import Callable

from testkit.swift_scenarios import access, accounts, large, listings, objects, products, services, signed
from testkit.swift_scenarios.site import Exchange, Site

AREAS: dict[str, Callable[[Site], None]] = {
    "auth": accounts.auth,
    "accounts": accounts.accounts,
    "containers": accounts.containers,
    "names": accounts.names,
    "metadata limits": accounts.metadata,
    "open pages": accounts.pages,
    "container listings": listings.containers,
    "account listings": listings.accounts,
    "access lists": access.lists,
    "container access": access.containers,
    "account access": access.accounts,
    "CORS": access.cors,
    "TempURL": signed.tempurl,
    "FormPost": signed.formpost,
    "static web": services.staticweb,
    "bulk upload": services.bulk_upload,
    "bulk delete": services.bulk_delete,
    "objects": objects.objects,
    "object metadata": objects.posts,
    "conditions": objects.conditions,
    "ranges": objects.ranges,
    "copies": objects.copies,
    "expiry": objects.expiry,
    "quotas": objects.quotas,
    "symlinks": objects.symlinks,
    "versions": objects.versions,
    "object versioning": objects.object_versioning,
    "static large objects": large.static,
    "dynamic large objects": large.dynamic,
    "products: manifests": products.manifests,
    "products: spellings": products.spellings,
    **{f"products: {versions}": products.area(versions) for versions in products.VERSIONS},
}


def run(site: Site, area: str) -> list[Exchange]:
    """What a store answers in an area."""
    site.clear()
    site.exchanges.clear()
    AREAS[area](site)
    return list(site.exchanges)
