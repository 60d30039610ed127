"""`python -m cbm.cli`: the program `cbm` without its script."""

import sys

from cbm.cli.main import main

sys.exit(main())
