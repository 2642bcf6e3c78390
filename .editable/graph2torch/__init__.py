"""What an editable install puts on Python's path: a package that stands for the checkout's, and nothing else of it.

The checkout itself on the path would give every environment top-level modules called cli, rules and tests.
"""

import importlib.util
import sys
from pathlib import Path

spec = importlib.util.spec_from_file_location(__name__, Path(__file__).resolve().parents[2] / "graph2torch" / "__init__.py")
assert spec is not None and spec.loader is not None
sys.modules[__name__] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
