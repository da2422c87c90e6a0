"""`python -m stitchcuda`: the command line."""

from stitchcuda.cli import main

if __name__ == "__main__":
    main()
