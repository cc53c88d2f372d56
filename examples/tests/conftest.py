"""The examples are programs, not a package: their directory is where they find each other."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
