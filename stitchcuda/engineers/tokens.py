"""How many tokens a model will count in a text, and how to shorten a text to a number of tokens.

The model's own tokenizer counts where tiktoken knows it and has its file in its cache already: nothing is ever downloaded.
Elsewhere the count is estimated from the bytes, on the high side, and from the first reply on corrected by what the server
reported. It never knows what a server adds around a message: a schema, tools, its own framing. Prices are in
`engineers/prices.py`. It is also a program that says what it would count: `python -m stitchcuda.engineers.tokens MODEL FILE…`.
"""

from __future__ import annotations

import bisect
import hashlib
import math
import os
import re
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

import tiktoken
import tiktoken.registry

from stitchcuda.engineers.prices import bare

BYTES_PER_TOKEN = 2.4
"""Below every whole prompt that was measured: 30 prompts of planner, coder and verifier over the six examples have 2.97 to
3.64 bytes a token with o200k_base, 2.98 to 3.66 with cl100k_base, 2.90 to 3.35 with DeepSeek V3's, and 2.54 or more with
cl100k_base where each digit is a token, as with Qwen. Parts go lower: dense CUDA to 2.3, PTX to 1.7 (docs/models.md)."""
CLAUDE_BYTES_PER_TOKEN = 1.9
"""The same 30 prompts have 2.49 to 2.94 up to Claude 4.6 and 2.10 to 2.31 from 4.7 on, with `ctok` 1.3, which reconstructs
these tokenizers; Anthropic itself says that the newer one makes about 30 % more tokens of the same text."""
BOUNDS = (1.25, 5.0)  # bytes a token; a report beyond is cut to it: below all PTX, above all prose that was measured
REPORTS = 32  # that many reports are kept, and the one with the most tokens a byte counts: roles differ by a fifth
MARGIN = 1.05
SMALLEST_REPORT = 1000  # bytes; below, most of what a server counts is what it adds itself
PIECE = 50_000  # characters; tiktoken's expressions overflow the stack on a million spaces
SAME_FILE = {"o200k_harmony": "o200k_base"}  # differ in special tokens only, of which a text has none
LEFT_OUT = re.compile(r"^… \((\d+) lines? left out\)$")
TROUBLE = re.compile(r"(?<![-\w])errors?\b|Error:|fatal|undefined (?:reference|symbol)", re.IGNORECASE)  # but not -Werror
AFTER = 2  # lines that a compiler prints below an error: the source, the caret


class TokenCounter:
    """Counts for one model; may be shared by threads."""

    def __init__(self, model: str) -> None:
        name = bare(model).rpartition("/")[2]
        self._initial = CLAUDE_BYTES_PER_TOKEN if name.startswith("claude") else BYTES_PER_TOKEN
        self._encoding, self._why = tokenizer(name)
        self._reports: deque[float] = deque(maxlen=REPORTS)  # tokens a byte
        self._lock = threading.Lock()

    def count(self, text: str) -> int:
        if self._encoding is not None:
            pieces = (text[at : at + PIECE] for at in range(0, len(text), PIECE))
            return sum(len(self._encoding.encode_ordinary(piece)) for piece in pieces)
        return math.ceil(size(text) / self._bytes_per_token())

    def observe(self, text_bytes: int, reported_tokens: int) -> None:
        """What the server counted for a request of so many bytes, all of its messages and schema together.

        Corrects the estimate upward or downward, within bounds. No effect with a tokenizer, which is right by itself, for small
        requests, and where a server reports nothing.
        """
        if text_bytes < SMALLEST_REPORT or reported_tokens <= 0:
            return
        low, high = BOUNDS
        with self._lock:
            self._reports.append(min(max(reported_tokens / text_bytes, 1 / high), 1 / low))

    @property
    def source(self) -> str:
        """Where counts come from, for a person: `tiktoken o200k_base` or `estimated …`, with the reason."""
        if self._encoding is not None:
            return f"tiktoken {self._encoding.name}"
        with self._lock:
            reports = len(self._reports)
        basis = f"by {reports} of the server's reports" if reports else self._why
        return f"estimated at {self._bytes_per_token():.2f} bytes a token ({basis})"

    def _bytes_per_token(self) -> float:
        with self._lock:
            return 1 / (max(self._reports) * MARGIN) if self._reports else self._initial


def size(text: str) -> int:
    """Bytes in UTF-8, as `TokenCounter.observe` wants them."""
    return len(text.encode("utf-8", "surrogatepass"))


def tokenizer(name: str) -> tuple[tiktoken.Encoding | None, str]:
    """A model's encoding, or None and why there is none here. Reads nothing but the file in tiktoken's cache."""
    try:
        wanted = tiktoken.encoding_name_for_model(name)
    except KeyError:
        return None, "its tokenizer is not known"
    encoding = SAME_FILE.get(wanted, wanted)
    address, sha256 = _published(encoding)
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))  # as tiktoken.load looks
    if folder is None:
        folder = str(Path(tempfile.gettempdir()) / "data-gym-cache")
    if not folder or not address:
        return None, f"tiktoken keeps no file of {encoding}"
    path = Path(folder) / hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None, f"{encoding} is not in tiktoken's cache, {folder}"
    except OSError as error:
        return None, f"{path}: {error.strerror}"
    # tiktoken would delete a file with another digest and download a new one
    if hashlib.sha256(data).hexdigest() != sha256:
        return None, f"{path} is not {encoding} as tiktoken wants it"
    return tiktoken.get_encoding(encoding), ""


def _published(encoding: str) -> tuple[str, str]:
    """Address and SHA-256 of an encoding's file, "" if not told. tiktoken has them only as constants inside the function that
    downloads the file, so they are read off it: a copy of them here could differ from the installed version's, which would
    then download after all."""
    tiktoken.list_encoding_names()  # fills the table
    constants = (tiktoken.registry.ENCODING_CONSTRUCTORS or {})[encoding].__code__.co_consts
    texts = [text for text in constants if isinstance(text, str)]
    address = next((text for text in texts if text.startswith("https://") and text.endswith(".tiktoken")), "")
    return address, next((text for text in texts if re.fullmatch(r"[0-9a-f]{64}", text)), "")


def fit(text: str, tokens: int, counter: TokenCounter) -> str:
    """The text if it has at most `tokens` tokens, else its head and tail around a line that says how many lines are missing.

    Whole lines only. Never more than `tokens`; "" if not even that line fits.
    """
    lines = text.splitlines(keepends=True)

    def around(head: int, tail: int) -> str:
        return _kept(lines, [*range(head), *range(len(lines) - tail, len(lines))])

    def fits(part: str) -> bool:
        return counter.count(part) <= tokens

    if tokens <= 0:
        return ""
    if fits(text):
        return text
    most = len(lines) - 1
    head = _most(most, lambda count: counter.count("".join(lines[:count])) <= tokens // 2)
    tail = _most(most - head, lambda count: fits(around(head, count)))
    head += _most(most - head - tail, lambda count: fits(around(head + count, tail)))
    while head + tail and not fits(around(head, tail)):
        head, tail = (head - 1, tail) if head > tail else (head, tail - 1)
    return around(head, tail) if fits(around(head, tail)) else ""


def fit_log(text: str, tokens: int, counter: TokenCounter) -> str:
    """A compiler's log in at most `tokens` tokens: lines with an error and the two below each first, the earliest errors before
    later ones, then what stands nearest to an error. A log without errors is cut as by `fit`."""
    lines = text.splitlines(keepends=True)
    errors = [at for at, line in enumerate(lines) if TROUBLE.search(line)]
    if tokens <= 0:
        return ""
    if not errors or counter.count(text) <= tokens:
        return fit(text, tokens, counter)
    blocks = [at for error in errors for at in range(error, min(error + AFTER + 1, len(lines)))]
    rest = sorted(range(len(lines)), key=lambda at: _distance(errors, at))
    order = list(dict.fromkeys([*blocks, *rest]))

    def fits(count: int) -> bool:
        return counter.count(_kept(lines, order[:count])) <= tokens

    count = _most(len(lines) - 1, fits)
    while count and not fits(count):
        count -= 1
    return _kept(lines, order[:count]) if fits(count) else ""


def _kept(lines: list[str], chosen: Iterable[int]) -> str:
    """The chosen lines in their order, each gap replaced by one line that says how many are missing."""
    parts: list[str] = []
    end = 0
    for at in [*sorted(chosen), len(lines)]:
        gap = lines[end:at]
        if gap:
            # a line that an earlier cut left stands for those that it counts
            missing = sum(int(found[1]) if (found := LEFT_OUT.match(line)) else 1 for line in gap)
            parts.append(f"… ({missing} line{'' if missing == 1 else 's'} left out)")
            parts.append("" if gap[-1].splitlines() == [gap[-1]] else "\n")  # a text need not end with a line end
        parts += lines[at : at + 1]
        end = at + 1
    return "".join(parts)


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """The greatest number up to `limit` that fits, if all below it do; 0 is not tried."""
    return bisect.bisect_left(range(1, limit + 1), True, key=lambda count: not fits(count))


def _distance(errors: list[int], at: int) -> int:
    right = bisect.bisect_left(errors, at)
    return min(abs(at - error) for error in errors[max(0, right - 1) : right + 1])


if __name__ == "__main__":
    counter = TokenCounter(sys.argv[1])
    print(f"{sys.argv[1]}: {counter.source}")
    for path in sys.argv[2:]:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        print(f"{counter.count(text):9,} tokens {size(text) / max(counter.count(text), 1):6.2f} bytes a token  {path}")
