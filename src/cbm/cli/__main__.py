"""`python -m cbm.cli`: runs `cbm` without its installed script."""

import sys

from cbm.cli.main import main

sys.exit(main())
