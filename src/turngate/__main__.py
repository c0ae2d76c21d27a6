"""``python -m turngate``: the command line."""

import sys

from turngate.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
