"""Stores sessions and everything they rest on: artefacts by digest, ledgers, checkpoints, locks.

It never decides anything about attempts and knows no graph.

Where to look next: `store/workspace.py` (one workspace), `store/store.py` (what the two stores have in common).
"""

from stitchcuda.store.files import write_atomically, writing
from stitchcuda.store.folder_store import FolderStore, SessionLock
from stitchcuda.store.session_record import SessionRecord
from stitchcuda.store.store import Store, get_tree, list_repairs, materialise, put_tree, record_repairs
from stitchcuda.store.workspace import Workspace

__all__ = [
    "FolderStore", "SessionLock", "SessionRecord", "Store", "Workspace", "get_tree", "list_repairs", "materialise", "put_tree",
    "record_repairs", "write_atomically", "writing",
]  # fmt: skip
