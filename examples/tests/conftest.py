"""The module path of the tests: the examples are programs, not a package, and import each other from their directory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
