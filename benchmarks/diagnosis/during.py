"""`python -m benchmarks.diagnosis.during FOLDER WORDS… -- COMMAND…`: a load with a fault that begins while it runs.

Runs on the client host, under `tracer record`. COMMAND is a `tracer bench run` that writes to FOLDER; a moment after it
has begun to, `tracer cluster fault add WORDS` is done, in this process, whose own start is over by then. So a recording
begins without the fault, however long its start takes on a busy machine. The exit status is COMMAND's.
"""

import subprocess
import sys
import time
from pathlib import Path

from storage_cluster.faults.commands import add

QUIET_S = 0.5
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
    add.main(words[:at], standalone_mode=False)
    sys.exit(load.wait())


if __name__ == "__main__":
    main()
