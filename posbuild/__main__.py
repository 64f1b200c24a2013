"""`python -m posbuild` is `posbuild`."""

from posbuild.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
