"""What of the distribution `twintap` depends on the kind of build; the rest is in setup.cfg and pyproject.toml.

`tracer._capture` is all that an agent's host needs. `tracer/_agent` is what `tracer record` sends to hosts without an
agent; where a build has no static C library, it is left out. `collector._core` is in a distribution of its own,
`twintap-core` (collector/core/python), because pip does not pass extras to a build: the extra `collector` requires it.

| build | extensions | `collector` requires |
|---|---|---|
| of a checkout | `_capture` | `twintap-core` from this checkout, by its path |
| of a release (`make dist`) or an sdist | `_capture` | `twintap-core` of the same version |
| editable | both, in place | nothing: both are there |
"""

import os
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup
from setuptools_rust import Binding, RustExtension

ROOT = Path(__file__).resolve().parent
CORE = ROOT / "collector" / "core" / "python"
BUILD = os.environ.get("TWINTAP_BUILD", "")
"""`release`, `editable` (set by scripts/build_backend.py) or empty."""


def core_requirement() -> list[str]:
    """What the extra `collector` needs for `collector._core`."""
    if BUILD == "editable":
        return []
    if BUILD == "release" or (ROOT / "PKG-INFO").exists():  # only an sdist has that file
        config = ConfigParser()
        config.read(ROOT / "setup.cfg")
        return [f"twintap-core=={config['metadata']['version']}"]
    return [f"twintap-core @ {CORE.as_uri()}"]


def extension(name: str, folder: str) -> RustExtension:
    """An extension for every Python from 3.11 on, compiled for release."""
    return RustExtension(name, f"{folder}/Cargo.toml", binding=Binding.PyO3, py_limited_api=True, debug=False)


def sent_agent() -> RustExtension:
    """`tracer/_agent`, which `tracer record` sends along: linked statically, it runs on every Linux of this processor.

    Without a static C library here it is not built, and hosts without an agent of their own are recorded by tcpdump.
    """
    return RustExtension(
        {"twintap-agent": "tracer._agent"},
        "tracer/core/agent/Cargo.toml",
        binding=Binding.Exec,
        debug=False,
        optional=True,
        env=os.environ | {"RUSTFLAGS": "-C target-feature=+crt-static"},
    )


COLLECTOR = [
    *core_requirement(),
    "cryptography",
    "duckdb",
    "fastapi",
    "fsspec",
    "highspy",
    "msgspec",
    "networkx",
    "numpy",
    "polars",
    "prometheus-client",
    "pyarrow",
    "rich",
    "scipy",
    "uvicorn",
]
VIEWER = [*COLLECTOR, "dash", "plotly", "waitress", "zstandard"]
SCALE = [*COLLECTOR, "dask", "distributed", "s3fs"]
ASSISTANTS = [*COLLECTOR, "mcp"]
SPANS_OVER_GRPC = [*COLLECTOR, "grpcio"]
CLUSTER = [
    "aiohttp",
    "awscrt",
    "defusedxml",
    "fastapi",
    "hdrhistogram",
    "httptools",
    "httpx",
    "numpy",
    "pyeclib",
    "pyroute2",
    "python-swiftclient",
    "uvicorn",
    "uvloop",
    "zstandard",
]
TEST = [
    "axe-playwright-python",
    "boto3",
    "dpkt",
    "hypothesis",
    "mypy",
    "opentelemetry-proto",
    "perfetto",
    "playwright",
    "psutil",
    "pyshark",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
    "scapy",
]
EXTENSIONS = [extension("tracer._capture", "tracer/core/python"), sent_agent()]
if BUILD == "editable":
    EXTENSIONS.append(extension("collector._core", "collector/core/python"))

setup(
    rust_extensions=EXTENSIONS,
    extras_require={
        "collector": COLLECTOR,
        "viewer": VIEWER,
        "cluster": CLUSTER,
        "scale": SCALE,
        "mcp": ASSISTANTS,
        "otlp-grpc": SPANS_OVER_GRPC,
        "all": sorted({*VIEWER, *CLUSTER, *SCALE, *ASSISTANTS, *SPANS_OVER_GRPC}),
        "test": TEST,
    },
)
