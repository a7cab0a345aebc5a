"""Lets the tests here, and whoever adds this folder to ``sys.path``, import ``strategies``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
