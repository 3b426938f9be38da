"""An interpreter that has a package of PyPI's: this one, or the one that REAL_SYSTEMS_PYTHON names."""

import functools
import os
import subprocess
import sys

VARIABLE = "REAL_SYSTEMS_PYTHON"


@functools.cache
def python_with(module: str) -> str:
    """Its path; "" if neither has the module."""
    for python in (os.environ.get(VARIABLE, ""), sys.executable):
        if python and _has(python, module):
            return python
    return ""


def _has(python: str, module: str) -> bool:
    try:
        done = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False, timeout=60)
    except OSError:
        return False
    return done.returncode == 0
