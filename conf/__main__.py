"""`python -m sluice.conf` prints defaults.toml."""

from __future__ import annotations

import sys

from sluice.conf.defaults_file import render

sys.stdout.write(render())
