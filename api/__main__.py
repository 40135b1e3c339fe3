"""`python -m sluice.api` is the `sluice` command."""

from sluice.api.cli import main

main()
