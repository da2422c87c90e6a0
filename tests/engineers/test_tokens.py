"""How many tokens a text has, with a tokenizer and without one, and texts shortened to a number of tokens.

The tokenizer is tiktoken's, on a vocabulary of 261 tokens that is put into its cache as a downloaded one would be. No test
here may open a connection.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import tiktoken
import tiktoken.model
import tiktoken.registry
from hypothesis import given
from hypothesis import strategies as st
from tiktoken.load import load_tiktoken_bpe

from stitchcuda.engineers.tokens import FILES, TokenCounter, fit, fit_log, size

VOCABULARY = [bytes([value]) for value in range(256)] + [b"er", b"in", b"int", b"  ", b"    "]
NAME = hashlib.sha1(b"https://127.0.0.1:9/small.tiktoken").hexdigest()
FILE = b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(VOCABULARY))
KERNEL = """\
__global__ void layer_norm_kernel(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ y, int n) {
    __shared__ float partial[32];
    const int row = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[row * n + i];
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    float mean = 0.0f;
    for (int i = 0; i < (blockDim.x >> 5); ++i) mean += partial[i];
    mean /= n;
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[row * n + i] = (x[row * n + i] - mean) * weight[i];
}
"""  # 253 tokens with o200k_base, 361 with the tokenizer of Claude 4.7 and later as ctok reconstructs it
LOG = """\
[1/2] nvcc -gencode=arch=compute_90a,code=sm_90a -Werror=cross-execution-space-call -c kernels/r01.cu -o kernels/r01.o
kernels/r01.cu(3): warning #177-D: variable "unused" was declared but never referenced
      int unused;
          ^

kernels/r01.cu(7): error: identifier "xs" is undefined
      y[i] = xs[i] * scale[i % 256];
             ^

kernels/r01.cu(9): warning #550-D: variable "last" was set but never used
      float last = y[i];
            ^

kernels/r01.cu(12): error: no instance of overloaded function "fmaxf" matches the argument list
            argument types are: (float4, float)
      y[i] = fmaxf(v, 0.0f);
             ^

2 errors detected in the compilation of "kernels/r01.cu".
"""  # 107 tokens with o200k_base without its warnings and its command


def small() -> dict[str, Any]:
    """As tiktoken's own constructors, address and digest of the file included."""
    ranks = load_tiktoken_bpe(
        "https://127.0.0.1:9/small.tiktoken",
        expected_hash="3c710f3e63049186e25759b3213538dc974327090fcd33c187b2d25e1576c8c2",
    )
    return {"name": "small", "pat_str": r"\w+|\s+|[^\w\s]+", "mergeable_ranks": ranks, "special_tokens": {"<|endoftext|>": 999}}


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> NoReturn:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def know_small(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Makes tiktoken know a `small-model`, and `folder` its cache."""
    tiktoken.list_encoding_names()
    constructors = tiktoken.registry.ENCODING_CONSTRUCTORS
    assert constructors is not None
    patch.setitem(constructors, "small", small)
    patch.setitem(tiktoken.model.MODEL_TO_ENCODING, "small-model", "small")
    patch.setitem(FILES, "small", (NAME, hashlib.sha256(FILE).hexdigest()))
    patch.setenv("TIKTOKEN_CACHE_DIR", str(folder))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """tiktoken's cache, empty; it knows a `small-model`."""
    know_small(tmp_path, monkeypatch)
    yield tmp_path
    tiktoken.registry.ENCODINGS.pop("small", None)


@pytest.fixture(scope="module", params=["estimate", "tokenizer"])
def counter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenCounter]:
    """A counter of either kind."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        know_small(folder, patch)
        (folder / NAME).write_bytes(FILE)
        made = TokenCounter("small-model" if request.param == "tokenizer" else "unknown-model")
        assert (made.encoding is not None) == (request.param == "tokenizer")
        yield made
    tiktoken.registry.ENCODINGS.pop("small", None)


def test_with_its_file_in_the_cache_the_tokenizer_counts(cache: Path) -> None:
    (cache / NAME).write_bytes(FILE)
    counter = TokenCounter("openai:small-model")
    assert counter.encoding is not None
    assert counter.count("") == 0
    assert counter.count("int  er") == 3
    assert counter.count("xint") == 2
    assert counter.count("<|endoftext|>") == 13, "no special token: a text is only text"
    assert counter.count("é\ud800") == 5, "half a surrogate pair counts as its replacement, of three bytes"


def test_a_tokenizer_needs_no_correction_and_takes_any_length(cache: Path) -> None:
    (cache / NAME).write_bytes(FILE)
    counter = TokenCounter("small-model")
    counter.observe(10_000, 10_000)
    assert counter.count("int" * 1_000) == 1_000
    assert counter.count(" " * 1_000_000) == 250_000, "tiktoken itself gives up on such a line"


def test_without_its_file_the_tokens_are_estimated_and_nothing_is_fetched(cache: Path) -> None:
    counter = TokenCounter("small-model")
    assert counter.encoding is None
    assert counter.count("") == 0
    assert counter.count("x" * 240) == 100
    assert counter.count("é" * 120) == 100, "bytes, not characters"
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("model", ["gpt-5", "gpt-4o", "o3", "gpt-4-turbo", "openai/gpt-oss-20b"])
def test_no_model_of_openai_makes_it_download(model: str, cache: Path) -> None:
    assert TokenCounter(model).encoding is None
    assert list(cache.iterdir()) == []


def test_a_damaged_file_is_not_used_and_left_alone(cache: Path) -> None:
    (cache / NAME).write_bytes(FILE[:-1])
    assert TokenCounter("small-model").encoding is None
    assert (cache / NAME).read_bytes() == FILE[:-1]


def test_the_cache_is_found_as_tiktoken_finds_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / NAME).write_bytes(FILE)
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", "/nowhere")
    assert TokenCounter("small-model").encoding is not None
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert TokenCounter("small-model").encoding is None, "an empty name turns the cache off"
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(cache))
    assert TokenCounter("small-model").encoding is not None


def test_the_installed_tiktoken_wants_these_files() -> None:
    """It has their addresses and digests only as constants inside the functions that would download them."""
    tiktoken.list_encoding_names()
    for encoding, (name, sha256) in FILES.items():
        constants = (tiktoken.registry.ENCODING_CONSTRUCTORS or {})[encoding].__code__.co_consts
        texts = [text for text in constants if isinstance(text, str)]
        (address,) = (text for text in texts if text.startswith("https://"))
        assert hashlib.sha1(address.encode()).hexdigest() == name
        assert sha256 in texts


def test_estimates_are_not_below_what_models_count() -> None:
    assert TokenCounter("unknown").count(KERNEL) >= 253
    assert TokenCounter("anthropic:claude-opus-5").count(KERNEL) >= 361
    assert TokenCounter("unknown").count(LOG[LOG.index("kernels/r01.cu(7)") :]) >= 107


def test_reports_raise_the_estimate_and_never_lower_it() -> None:
    counter = TokenCounter("unknown")
    text = "x" * 8_400
    assert counter.count(text) == 3_500
    counter.observe(10_000, 2_500)
    assert counter.count(text) == 3_500
    counter.observe(10_000, 5_000)
    assert counter.count(text) == 4_410, "two bytes a token, and 5 % more: the next prompt may be of its kind"
    counter.observe(10_000, 2_500)
    assert counter.count(text) == 4_410


def test_reports_that_cannot_be_are_bounded_or_ignored() -> None:
    counter = TokenCounter("unknown")
    counter.observe(900, 900)
    counter.observe(0, 100)
    counter.observe(10_000, 0)
    assert counter.count("x" * 2_400) == 1_000
    counter.observe(10_000, 10**9)
    assert counter.count("x" * 10_000) == 8_400


@given(st.lists(st.tuples(st.integers(-10, 10**7), st.integers(-10, 10**9)), max_size=40), st.text("aé… \n", max_size=200))
def test_an_estimate_stays_within_its_bounds_whatever_is_reported(reports: list[tuple[int, int]], text: str) -> None:
    counter = TokenCounter("unknown")
    for text_bytes, tokens in reports:
        counter.observe(text_bytes, tokens)
    assert math.floor(size(text) / 2.4) <= counter.count(text) <= size(text)
    assert counter.count(text + "x") >= counter.count(text)


LINE = st.text(alphabet="int er+=é…0", max_size=30) | st.sampled_from(
    ["a.cu(7): error: no", "    ^", "… (3 lines left out)", "… (1 line left out)", "", "\r"]
)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, st.lists(LINE, max_size=40), st.sampled_from(["", "\n"]))


def left_out(text: str) -> int:
    return sum(int(found) for found in re.findall(r"^… \((\d+) lines? left out\)$", text, re.MULTILINE))


@pytest.mark.parametrize("cut", [fit, fit_log])
@given(text=TEXTS, tokens=st.integers(-1, 200))
def test_a_shortened_text_fits_and_stays_as_it_is(
    cut: Callable[[str, int, TokenCounter], str], counter: TokenCounter, text: str, tokens: int
) -> None:
    short = cut(text, tokens, counter)
    assert counter.count(short) <= max(tokens, 0)
    assert cut(short, tokens, counter) == short
    assert short == text or counter.count(text) > tokens
    if short and "left out" not in text:
        whole = text.splitlines()
        kept = [line for line in short.splitlines() if "left out" not in line]
        assert len(kept) + left_out(short) == len(whole), "each line is there or counted"
        rest = iter(whole)
        assert all(line in rest for line in kept), "whole lines, in their order"


def test_head_and_tail_remain_around_a_line_that_says_what_is_missing() -> None:
    text = "".join(f"line {number:03}\n" for number in range(300))
    short = fit(text, 100, TokenCounter("unknown")).splitlines()
    marks = [line for line in short if "left out" in line]
    assert marks == [f"… ({300 - len(short) + 1} lines left out)"]
    at = short.index(marks[0])
    assert short[:at] == [f"line {number:03}" for number in range(at)]
    assert short[at + 1 :] == [f"line {number:03}" for number in range(300 - len(short) + at + 1, 300)]
    assert min(at, len(short) - at) >= 10
    assert TokenCounter("unknown").count("\n".join(short)) >= 95, "as much as fits"


def test_nothing_fits_into_nothing() -> None:
    counter = TokenCounter("unknown")
    assert fit("text\n" * 10, 0, counter) == ""
    assert fit("text\n" * 10, 3, counter) == "", "not even the line that says so"
    assert fit_log("error\n" * 10, 0, counter) == ""
    assert fit("x" * 1_000, 20, counter) == "… (1 line left out)"
    assert fit("text\n", 100, counter) == "text\n"


def test_a_log_keeps_its_errors_first() -> None:
    counter = TokenCounter("unknown")
    assert fit_log(LOG, 10_000, counter) == LOG
    assert fit_log(LOG, 80, counter) == (
        "… (5 lines left out)\n"
        'kernels/r01.cu(7): error: identifier "xs" is undefined\n'
        "      y[i] = xs[i] * scale[i % 256];\n"
        "             ^\n"
        "… (11 lines left out)\n"
    )
    more = fit_log(LOG, 200, counter)
    assert "(12): error" in more
    assert "2 errors detected" in more
    assert "[1/2] nvcc" not in more, "-Werror is no error"


def test_a_log_without_errors_keeps_head_and_tail() -> None:
    log = LOG.replace("error", "remark")
    assert fit_log(log, 150, TokenCounter("unknown")) == fit(log, 150, TokenCounter("unknown"))
