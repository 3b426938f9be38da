"""The build backend of the distribution `twintap`: setuptools', which lets setup.py know of an editable build.

The hooks of an editable build set `TWINTAP_BUILD` for it; setuptools gives their metadata no mark of their own.
"""

import os
from collections.abc import Mapping

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = Mapping[str, str] | None


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Settings = None) -> str:
    """Write the metadata of an editable build; returns the name of its folder."""
    os.environ["TWINTAP_BUILD"] = "editable"
    return build_meta.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build both extensions in place, and a wheel that points at the checkout; returns its name."""
    os.environ["TWINTAP_BUILD"] = "editable"
    return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
