"""Stores sessions and everything they rest on: artefacts by digest, ledgers, checkpoints, locks.

`store/workspace.py` is one workspace, `store/store.py` what its two stores (`store/folder_store.py`, `store/postgres_store.py`)
have in common, `store/session_record.py` what a session was asked to do. It never decides anything about attempts and knows no
graph.
"""

from stitchcuda.store.files import write_atomically, writing
from stitchcuda.store.folder_store import FolderStore, SessionLock
from stitchcuda.store.session_record import SessionRecord
from stitchcuda.store.store import Store, get_tree, materialise, mended, put_tree, remember
from stitchcuda.store.workspace import Workspace

__all__ = [
    "FolderStore",
    "SessionLock",
    "SessionRecord",
    "Store",
    "Workspace",
    "get_tree",
    "materialise",
    "mended",
    "put_tree",
    "remember",
    "write_atomically",
    "writing",
]
