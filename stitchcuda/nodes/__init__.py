"""Planner, coder, verifier, and one thin node per tool."""
