"""Wiring on one screen, routing as pure functions, the runtime context."""
