"""Holds the version of StitchCUDA, which pyproject.toml reads from here, so that a checkout without metadata has it too."""

VERSION = "0.1.0"
