"""A tcpdump expression as a kernel program, compiled by libpcap through `ctypes`; only here is libpcap needed.

The kernel takes the VLAN tag out of most frames before its filter sees them, but not of all. So that one expression
means the same for both, it is compiled twice: as it is, and behind a tag. Therefore `vlan` itself cannot be used in it.
Source: pcap-filter(7), pcap_compile(3PCAP).
"""

import ctypes
import ctypes.util
import re
from dataclasses import dataclass

from tracer.errors import InputError, MissingDependencyError

Program = list[tuple[int, int, int, int]]
"""Classic BPF: (code, jt, jf, k) of each instruction."""

DLT_EN10MB = 1
DLT_RAW = 12
_NETMASK_UNKNOWN = 0xFFFFFFFF
_LONGEST_PROGRAM = 4096
"""Instructions; BPF_MAXINSNS of the kernel."""


@dataclass(frozen=True, slots=True)
class Filter:
    """An expression and its programs for each kind of link; `raw_ip` is `None` where it does not fit."""

    expression: str
    ethernet: Program
    raw_ip: Program | None


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint), ("instructions", ctypes.POINTER(_Instruction)))


def compile_filter(expression: str, snaplen: int) -> Filter:
    """Compile a tcpdump expression. `snaplen`: bytes of each packet that the kernel copies.

    Raises: MissingDependencyError without libpcap; InputError with libpcap's message for a bad expression.
    """
    if re.search(r"\bvlan\b", expression):
        raise InputError(
            f"'vlan' cannot be used in a filter ({expression!r})", "leave it out: tagged packets are matched too"
        )
    library = _load_library()
    ethernet = _compile(library, DLT_EN10MB, f"({expression}) or (vlan and ({expression}))", expression, snaplen)
    try:
        raw_ip = _compile(library, DLT_RAW, expression, expression, snaplen)
    except InputError:
        raw_ip = None  # it speaks of Ethernet; the core says so if an interface has none
    return Filter(expression, ethernet, raw_ip)


def _load_library() -> ctypes.CDLL:
    name = ctypes.util.find_library("pcap") or "libpcap.so.0.8"
    try:
        library = ctypes.CDLL(name)
    except OSError:
        raise MissingDependencyError("a filter expression needs libpcap", "run: apt install libpcap0.8") from None
    library.pcap_open_dead.restype = ctypes.c_void_p
    library.pcap_open_dead.argtypes = (ctypes.c_int, ctypes.c_int)
    library.pcap_geterr.restype = ctypes.c_char_p
    library.pcap_geterr.argtypes = (ctypes.c_void_p,)
    library.pcap_compile.argtypes = (
        ctypes.c_void_p,
        ctypes.POINTER(_Program),
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_uint32,
    )
    library.pcap_freecode.argtypes = (ctypes.POINTER(_Program),)
    library.pcap_close.argtypes = (ctypes.c_void_p,)
    return library


def _compile(library: ctypes.CDLL, link_type: int, text: str, expression: str, snaplen: int) -> Program:
    handle = library.pcap_open_dead(link_type, snaplen)
    try:
        program = _Program()
        if library.pcap_compile(handle, ctypes.byref(program), text.encode(), 1, _NETMASK_UNKNOWN) != 0:
            message = library.pcap_geterr(handle).decode(errors="replace")
            raise InputError(f"the filter {expression!r} does not compile: {message}", "see: man pcap-filter")
        found = [(i.code, i.jt, i.jf, i.k) for i in program.instructions[: program.length]]
        library.pcap_freecode(ctypes.byref(program))
    finally:
        library.pcap_close(handle)
    if len(found) > _LONGEST_PROGRAM:
        raise InputError(f"the filter {expression!r} is too long for the kernel", "shorten it")
    return found
