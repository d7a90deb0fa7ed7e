"""`python -m sweeps` is `specsweep`."""

import sys

from sweeps.cli import main

sys.exit(main())
