"""`stitchcuda` and `python -m stitchcuda`: the command line, with Ctrl-C understood while it is still being loaded."""

import os
import sys

INTERRUPTED = 130


def main() -> None:
    try:
        from stitchcuda.cli import main as run

        run()
    except KeyboardInterrupt:
        print("stitchcuda: interrupted before anything was started", file=sys.stderr)
    except SystemExit as end:
        if end.code != INTERRUPTED:
            raise
    else:
        return
    # Python forgets our exit code and ends itself by SIGINT when the interrupt fell into an exec() of text, as in the making
    # of a dataclass while modules are loaded. A shell shows 130 either way; who started us should see it too.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
