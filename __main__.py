"""`python -m penstock` is the command `penstock`."""

import sys

from .frontend.cli import main

sys.exit(main())
