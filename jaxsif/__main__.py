"""`python -m jaxsif`."""

import sys

from jaxsif.cli import main

sys.exit(main())
