"""Segmentation offload of an interface, as `ethtool -K` sets it.

Source: linux/ethtool.h (legacy get and set commands, which every driver answers), linux/sockios.h.
"""

import ctypes
import fcntl
import socket
import struct

_SIOCETHTOOL = 0x8946
_FEATURES = {"tso": (0x1E, 0x1F), "gso": (0x23, 0x24), "gro": (0x2B, 0x2C)}  # name: get, set
_VALUE = struct.Struct("II")  # struct ethtool_value: cmd, data
_REQUEST = struct.Struct("16sP16x")  # struct ifreq: name, pointer to the value


def set_offload(interface: str, **features: bool) -> None:
    """Switch `tso`, `gso`, `gro` of an interface on or off. Raises: OSError."""
    for feature, wanted in features.items():
        _call(interface, _FEATURES[feature][1], int(wanted))


def get_offload(interface: str) -> dict[str, bool]:
    """Which of `tso`, `gso`, `gro` an interface has on. Raises: OSError."""
    return {feature: bool(_call(interface, get, 0)) for feature, (get, _) in _FEATURES.items()}


def _call(interface: str, command: int, data: int) -> int:
    value = ctypes.create_string_buffer(_VALUE.pack(command, data), _VALUE.size)
    request = _REQUEST.pack(interface.encode("ascii"), ctypes.addressof(value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket.fileno(), _SIOCETHTOOL, request)
    answer: int = _VALUE.unpack(value.raw)[1]
    return answer
