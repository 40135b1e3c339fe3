"""The commands of `sluice`, one module per subject."""
