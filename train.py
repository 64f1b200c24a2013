from posbuild.cli import train

if __name__ == "__main__":
    raise SystemExit(train())
