"""OpenStack Swift from Debian's packages, on hosts like the bundled cluster's: something to compare with.

    python -m benchmarks.swift up [--daemons] | status | exec HOST -- COMMAND | down | compare | functional SOURCE

As root, with the packages of `PACKAGES` installed and nothing of them running on the machine itself.
"""

PACKAGES = (
    "swift-proxy",
    "swift-account",
    "swift-container",
    "swift-object",
    "swift-object-expirer",
    "memcached",
)
