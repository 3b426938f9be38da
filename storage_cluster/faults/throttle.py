"""`python -m storage_cluster.faults.throttle SHARE PID…`: lets processes run for only a share of each period.

The processes are stopped and continued together, so over a period they get at most that share of one core each. A
process stopped by another program is not continued. Ends when standard input closes; then it continues what it stopped.
"""

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path

PERIOD_S = 0.05


def main() -> None:
    """Stop and continue the processes until a line, or the end of standard input, arrives."""
    share, pids = float(sys.argv[1]), [int(text) for text in sys.argv[2:]]
    begin_s = time.monotonic()
    while not _receives_end(begin_s + PERIOD_S * share):
        stopped = [pid for pid in pids if not _is_stopped(pid) and _signal(pid, signal.SIGSTOP)]
        begin_s += PERIOD_S
        ending = _receives_end(begin_s)
        for pid in stopped:
            _signal(pid, signal.SIGCONT)
        if ending:
            return


def _receives_end(until_s: float) -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], max(0, until_s - time.monotonic()))
    return bool(readable)


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        return text[text.rindex(")") + 2] == "T"
    return True


def _signal(pid: int, number: signal.Signals) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


if __name__ == "__main__":
    main()
