"""Computes a fingerprint of an error message, equal for messages that differ only from run to run.

Folders, addresses, line numbers and other numbers are removed before hashing.

Where to look next: `graph/routes.py` (counts equal fingerprints), `nodes/attempt_figures.py` (the message).
"""

from __future__ import annotations

import hashlib
import re

_PASSES = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),                                # colours
    (re.compile(r"(?:[A-Za-z]:)?(?:[\w.~+-]*[/\\])+([\w.+-]*)"), r"\1"),  # folders; file names stay
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{12,}\b"), "#"),          # addresses, digests
    (re.compile(r"[-+]?\b\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"), "#"),         # line numbers, errors, times
    (re.compile(r"\s+"), " "),
)


def fingerprint(message: str) -> str:
    """Returns 16 hexadecimal digits, equal for messages that differ only in folders, numbers or white space; "" for ""."""
    for pattern, replacement in _PASSES:
        message = pattern.sub(replacement, message)
    message = message.strip()
    return hashlib.sha256(message.encode()).hexdigest()[:16] if message else ""
