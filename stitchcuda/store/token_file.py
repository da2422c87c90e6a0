"""Reads the token that the clients of one of our servers have to send, and checks that it is one.

It makes no tokens and never prints one.
Where to look next: `training/reward_service/serve.py`, `agents/mcp_serving.py` (the servers).
"""

from __future__ import annotations

from pathlib import Path

from stitchcuda.errors import BadInput


def read_token(file: Path) -> str:
    """Returns the token in a text file that holds it alone. Raises `BadInput`."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the token in {file} cannot be read ({error}): give a text file with the token alone") from error
    return check_token(text, str(file))


def check_token(text: str, source: str) -> str:
    """Returns the token without space around it. `source` names where it is from. Raises `BadInput` for what is none."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadInput(f"{source} holds no token: give one line of letters, digits and signs without spaces")
    return token
