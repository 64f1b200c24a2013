"""One job in a process of its own: `python -m posbuild.training.job FOLDER`.

The folder holds settings.json. Exit status: 0 if the run is complete, else 1. With several processes (trainer=ddp)
Lightning starts the same command again for each further one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from posbuild import records
from posbuild.errors import ConfigError, RunError
from posbuild.training.load import read_settings
from posbuild.training.run import is_first_process, run


def main(folder: str) -> int:
    try:
        settings, command = read_settings(Path(folder))
    except (ConfigError, RunError) as error:
        print(error, file=sys.stderr)
        return 1
    status = run(settings, Path(folder), command)
    # Lightning kills the first process when another exits with an error: how the run ended is for the first to say.
    return 0 if status == records.COMPLETE or not is_first_process() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
