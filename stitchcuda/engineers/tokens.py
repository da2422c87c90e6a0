"""Counts the tokens of a text for a model, and shortens texts to a number of tokens.

The model's tokenizer is used if tiktoken knows it and has its file in its cache already: nothing is downloaded. Otherwise
tokens are estimated from bytes (BYTES_PER_TOKEN, on the high side), and the estimate is raised by what the server reports. What
a server adds around a message (a schema, tools, framing) is not counted.

Where to look next: `engineers/prompt.py` (cuts sections), `engineers/metered_chat.py` (reports), `engineers/prices.py`.
"""

from __future__ import annotations

import bisect
import hashlib
import math
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

import tiktoken

from stitchcuda.counts import counted
from stitchcuda.engineers.prices import strip_provider

_LEFT_OUT = re.compile(r"^… \((\d+) lines? left out\)$")
BYTES_PER_TOKEN = 2.4
"""Below every whole prompt that was measured: 30 prompts of planner, coder and verifier over the six examples have 2.97 to
3.64 bytes a token with o200k_base, 2.98 to 3.66 with cl100k_base, 2.90 to 3.35 with DeepSeek V3's, and 2.54 or more with
cl100k_base where each digit is a token, as with Qwen. Parts go lower: dense CUDA to 2.3, PTX to 1.7 (docs/models.md)."""
CLAUDE_BYTES_PER_TOKEN = 1.9
"""The same 30 prompts have 2.49 to 2.94 up to Claude 4.6 and 2.10 to 2.31 from 4.7 on, with `ctok` 1.3, which reconstructs
these tokenizers; Anthropic itself says that the newer one makes about 30 % more tokens of the same text."""
LEAST_BYTES = 1.25  # bytes a token: a report below, which is less than any PTX has, is not believed
MARGIN = 1.05  # on what a server reported: the next prompt may be denser
SMALLEST_REPORT = 1000  # bytes; below, most of what a server counts is what it adds itself
PIECE = 50_000  # characters; tiktoken's expressions overflow the stack on a million spaces
FILES = {
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
    ),
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
    ),
}  # fmt: skip
"""Of each encoding, its file's name in tiktoken's cache, and the SHA-256 without which tiktoken would download it anew."""
SAME_FILE = {"o200k_harmony": "o200k_base"}  # differ in special tokens only, of which a text has none
TROUBLE = re.compile(r"(?<![-\w])errors?\b|Error:|fatal|undefined (?:reference|symbol)", re.IGNORECASE)  # but not -Werror
AFTER = 2  # lines that a compiler prints below an error: the source, the caret


class TokenCounter:
    """Counts tokens for one model; threads may share it."""

    def __init__(self, model: str) -> None:
        name = strip_provider(model).rpartition("/")[2]
        self.encoding = tokenizer(name)
        """tiktoken's encoding; None where tokens are estimated."""
        self._bytes_per_token = CLAUDE_BYTES_PER_TOKEN if name.startswith("claude") else BYTES_PER_TOKEN

    def count(self, text: str) -> int:
        if self.encoding is not None:
            pieces = (text[at : at + PIECE] for at in range(0, len(text), PIECE))
            return sum(len(self.encoding.encode_ordinary(piece)) for piece in pieces)
        return math.ceil(size(text) / self._bytes_per_token)

    def observe(self, text_bytes: int, reported_tokens: int) -> None:
        """Takes over what the server counted for a request of so many bytes, messages and schema together. Raises the estimate,
        down to LEAST_BYTES a token, and never lowers it. Has no effect with a tokenizer, and for requests below SMALLEST_REPORT
        bytes."""
        if text_bytes >= SMALLEST_REPORT and reported_tokens > 0:
            reported = max(text_bytes / reported_tokens, LEAST_BYTES) / MARGIN
            self._bytes_per_token = min(self._bytes_per_token, reported)


def size(text: str) -> int:
    """Returns the number of bytes in UTF-8, as `TokenCounter.observe` takes it."""
    return len(text.encode("utf-8", "surrogatepass"))


def tokenizer(name: str) -> tiktoken.Encoding | None:
    """Returns a model's encoding; None if tiktoken does not know it or would have to download its file."""
    try:
        wanted = tiktoken.encoding_name_for_model(name)
    except KeyError:
        return None
    encoding = SAME_FILE.get(wanted, wanted)
    cached, sha256 = FILES.get(encoding, ("", ""))
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))  # as tiktoken.load looks
    path = Path(tempfile.gettempdir(), "data-gym-cache", cached) if folder is None else Path(folder, cached)
    if not cached or folder == "" or not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        return None
    return tiktoken.get_encoding(encoding)


def fit(text: str, tokens: int, counter: TokenCounter) -> str:
    """Returns the text if it has at most `tokens` tokens, else its first and last lines around "… (N lines left out)". Only
    whole lines are kept. The result never exceeds `tokens`; "" if not even that line fits."""
    last = len(text.splitlines()) - 1
    return _fit_lines(text, [at // 2 if at % 2 == 0 else last - at // 2 for at in range(last + 1)], tokens, counter)


def fit_log(text: str, tokens: int, counter: TokenCounter) -> str:
    """Returns a compiler's log in at most `tokens` tokens. Lines with an error and the two below each are kept first, in order,
    then the lines nearest to an error. A log without errors is cut as by `fit`."""
    lines = text.splitlines()
    errors = [at for at, line in enumerate(lines) if TROUBLE.search(line)]
    if not errors:
        return fit(text, tokens, counter)
    blocks = [at for error in errors for at in range(error, min(error + AFTER + 1, len(lines)))]
    rest = sorted(range(len(lines)), key=lambda at: _distance_to_error(errors, at))
    return _fit_lines(text, list(dict.fromkeys([*blocks, *rest])), tokens, counter)


def _fit_lines(text: str, order: list[int], tokens: int, counter: TokenCounter) -> str:
    """Returns the text if it fits, else as many of its lines as fit, chosen in the order of `order` (line indices)."""
    if tokens <= 0:
        return ""
    if counter.count(text) <= tokens:
        return text
    lines = text.splitlines(keepends=True)

    def tokens_of(count: int) -> int:
        return counter.count(_join_lines(lines, order[:count]))

    count = bisect.bisect_right(range(1, len(lines)), tokens, key=tokens_of)
    while count and tokens_of(count) > tokens:  # a line that closes a gap may take fewer tokens than the gap's own line
        count -= 1
    return _join_lines(lines, order[:count]) if tokens_of(count) <= tokens else ""


def _join_lines(lines: list[str], chosen: Iterable[int]) -> str:
    """Joins the chosen lines in their order; each gap becomes one line that says how many are missing."""
    parts: list[str] = []
    end = 0
    for at in [*sorted(chosen), len(lines)]:
        gap = lines[end:at]
        if gap:
            # a marker line of an earlier cut counts as the lines that it replaced
            missing = sum(int(cut[1]) if (cut := _LEFT_OUT.match(line)) else 1 for line in gap)
            parts.append(f"… ({counted(missing, 'line')} left out)")
            parts.append("" if gap[-1].splitlines() == [gap[-1]] else "\n")  # the text may end without a newline
        parts += lines[at : at + 1]
        end = at + 1
    return "".join(parts)


def _distance_to_error(errors: list[int], at: int) -> int:
    right = bisect.bisect_left(errors, at)
    return min(abs(at - error) for error in errors[max(0, right - 1) : right + 1])
