"""`python -m benchmarks.diagnosis.during FOLDER WORDS… -- COMMAND…`: a load with a fault that begins while it runs.

Runs on the client host, under `tracer record`. COMMAND is a `tracer bench run` that writes to FOLDER; once it has begun
to, and a moment later, `tracer cluster fault add WORDS` is done. So a recording begins without the fault, however long
its own start takes on a busy machine. The exit status is COMMAND's.
"""

import subprocess
import sys
import time
from pathlib import Path

QUIET_S = 1.0
"""So long the load goes without the fault."""
POLL_S = 0.02


def main() -> None:
    """Start the load, add the fault, wait for the load's end."""
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    at = words.index("--")
    load = subprocess.Popen(words[at + 1 :])
    while load.poll() is None and not folder.exists():
        time.sleep(POLL_S)
    time.sleep(QUIET_S)
    add = [sys.executable, "-P", "-m", "tracer", "cluster", "fault", "add", *words[:at]]
    added = subprocess.run(add, check=False).returncode
    sys.exit(load.wait() or added)


if __name__ == "__main__":
    main()
