"""``python -m sqlrag`` is the command ``sqlrag``."""

from sqlrag.cli import main

if __name__ == "__main__":
    main()
