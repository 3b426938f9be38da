r"""What runs on a remote host, as text for its `sh` (POSIX; dash, bash and busybox). Nothing here runs on this machine.

A session's shell reads a length and so many bytes, and runs them, until its input ends. So all of it goes over one
connection, and no text is in a command line, which other users there could read. `TOKEN` marks our own lines on the
standard output, where a login script may print others before.
"""

import shlex
from collections.abc import Sequence

LOOP = 'while read -r n; do eval "$(head -c "$n")"; done'
"""The whole program of a session: `sh -c LOOP`."""

PROBE = r"""
PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin
LC_ALL=C; export LC_ALL
echo system "$(uname -s)"
echo machine "$(uname -m)"
echo uid "$(id -u)"
echo capabilities "$(sed -n 's/^CapEff:[^0-9a-f]*//p' /proc/self/status)"
echo identity "$(cat /proc/sys/kernel/random/boot_id)" "$(readlink /proc/self/ns/net)"
echo connection "$SSH_CONNECTION"
echo load "$(cut -d ' ' -f 1 /proc/loadavg)"
echo processors "$(grep -c ^processor /proc/cpuinfo)"
echo tcpdump "$(command -v tcpdump)"
a=$(command -v twintap-agent) && echo agent "$("$a" --version | cut -d ' ' -f 2) $a"
if [ "$(id -u)" != 0 ]; then
  if s=$(sudo -n sh -c "sed -n 's/^CapEff:[^0-9a-f]*//p' /proc/self/status" 2>/dev/null); then echo sudo all "$s"
  elif sudo -n -l "$(command -v tcpdump)" >/dev/null 2>&1; then echo sudo tcpdump
  fi
  getcap "$(command -v tcpdump)" 2>/dev/null | grep -q net_raw && echo tcpdump_capable yes
fi
tail -n +2 /proc/net/route 2>/dev/null | while read -r i d _; do echo route "$i" "$d"; done
cat /proc/net/if_inet6 2>/dev/null | while read -r a x _ s _ i; do echo inet6 "$i" "$s" "$a"; done
sed -n 's/^ *\([^:]*\):.*/\1/p' /proc/net/dev | while read -r i; do
  l=$(ip -o link show dev "$i" 2>/dev/null)
  if [ -n "$l" ]; then
    n=${l%%:*}; m=$(echo "$l" | sed -n 's/.* link\/[a-z0-9]* \([0-9a-f:]*\).*/\1/p')
  else n=$(cat "/sys/class/net/$i/ifindex" 2>/dev/null); m=$(cat "/sys/class/net/$i/address" 2>/dev/null)
  fi
  echo interface "$i" "${n:-0}" "${m:-none}"
  [ -d "/sys/class/net/$i/bridge" ] && echo bridge "$i"
  o=$(ethtool -k "$i" 2>/dev/null | sed -n 's/^tcp-segmentation-offload: on/tso/p
s/^generic-segmentation-offload: on/gso/p
s/^generic-receive-offload: on/gro/p
s/^large-receive-offload: on/lro/p')
  [ -n "$o" ] && echo offload "$i" $o
done
for d in /dev/shm /tmp /var/tmp "$HOME"; do
  f=$d/.twintap-probe-TOKEN
  (set -C; umask 077; : >"$f") 2>/dev/null || continue
  trap 'rm -f "$f"' HUP TERM
  chmod 700 "$f"; printf '#!/bin/sh\nexit 0\n' >"$f"
  if "$f" 2>/dev/null; then echo folder "$d"; rm -f "$f"; break; fi
  rm -f "$f"
done
echo libpcap "$(tcpdump --version 2>&1 | sed -n 's/^libpcap version \([0-9.]*\).*/\1/p')"
"""
"""Prints a line for each fact: its name and its value (`preflight.read_facts`). It writes one file, and removes it."""

CLOCK = "date +%s.%N"
"""Prints the time; without `%N` (busybox), in seconds."""

_SENT = r"""
umask 077
f=FOLDER/.twintap-TOKEN
(set -C; : >"$f") || exit 1
trap 'rm -f "$f"' HUP TERM
chmod 700 "$f"
exec 3<"$f" 4>"$f"
rm -f "$f"
echo TOKEN send
head -c LENGTH >&4 || exit 1
exec 4>&-
echo TOKEN stream
exec /proc/self/fd/3 ARGUMENTS
"""
"""Receives the agent into a file that has no name any more, and becomes it. The name lasts for milliseconds."""

_TCPDUMP = r"""
exec 3<&0
echo TOKEN stream
COMMAND </dev/null &
t=$!
(while timeout SILENCE sh -c 'read -r b'; do :; done <&3; sleep DRAIN; kill $t) >/dev/null 2>&1 &
w=$!
wait $t
s=$?
kill $w 2>/dev/null
exit $s
"""
"""Runs tcpdump until the input ends, or is silent: then the connection is gone."""

SILENCE_SECONDS = 60
DRAIN_SECONDS = 0.5
"""tcpdump forgets what it has not read when it is asked to end, so it is given so long to read."""


def with_token(script: str, token: str) -> str:
    """The script with its own marks."""
    return script.replace("TOKEN", token)


def sent_agent(folder: str, length: int, arguments: Sequence[str]) -> str:
    """Receive an agent of so many bytes, and run it."""
    filled = _SENT.replace("FOLDER", shlex.quote(folder)).replace("LENGTH", str(length))
    return filled.replace("ARGUMENTS", shlex.join(arguments))


def installed_agent(path: str, arguments: Sequence[str]) -> str:
    """Run the agent that is there."""
    return f"echo TOKEN stream\nexec {shlex.join([path, *arguments])}\n"


def tcpdump(words: Sequence[str]) -> str:
    """Run tcpdump, by these words. Where sudo permits it and nothing else, it cannot be sent a signal, and ends with
    the next packet that it sees after its connection."""
    timed = _TCPDUMP.replace("SILENCE", str(SILENCE_SECONDS)).replace("DRAIN", str(DRAIN_SECONDS))
    return timed.replace("COMMAND", shlex.join(words))


def as_root(script: str) -> str:
    """Run a script by sudo, which asks for nothing."""
    return f"exec sudo -n sh -c {shlex.quote(script)}\n"
