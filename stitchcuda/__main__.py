"""`stitchcuda` and `python -m stitchcuda`: the command line, with Ctrl-C understood while it is still being loaded."""

import sys


def main() -> None:
    try:
        from stitchcuda.cli import main as run

        run()
    except KeyboardInterrupt:
        print("stitchcuda: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
