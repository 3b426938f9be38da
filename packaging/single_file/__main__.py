"""Twintap's agent in one file, for Python 3.11 and later: `python3 twintap-agent-….pyz capture --help`.

Python imports modules from a zip file, but no extension: `tracer._capture` is loaded from a file in memory, so nothing
is unpacked to a disk, and it works where no folder may hold programs.
"""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - any Python may be asked to run it
    sys.exit("tracer: this file needs Python 3.11 or newer; twintap-agent without .pyz needs none")

import pkgutil
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location

EXTENSION = "tracer._capture"


def load_extension() -> None:
    """Import `tracer._capture`."""
    content = pkgutil.get_data("tracer", "_capture.abi3.so")
    assert content
    handle = os.memfd_create(EXTENSION)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        path = f"/proc/self/fd/{handle}"
        spec = spec_from_file_location(EXTENSION, path, loader=ExtensionFileLoader(EXTENSION, path))
        assert spec and spec.loader
        module = sys.modules[EXTENSION] = module_from_spec(spec)
        spec.loader.exec_module(module)
    import tracer  # noqa: PLC0415 - the package of the extension

    tracer._capture = module


load_extension()

from tracer.cli import main  # noqa: E402 - it imports the extension

main()
