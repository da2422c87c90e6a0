"""The workspace: where sessions live, and how what they rest on is kept whole.

`home.py` is one workspace, `store.py` what its two stores (`folder.py`, `postgres.py`) have in common, `record.py` what a
session was asked to do. It never decides anything about attempts and knows no graph.
"""

from stitchcuda.workspace.folder import FolderStore, SessionLock
from stitchcuda.workspace.home import Workspace
from stitchcuda.workspace.record import SessionRecord
from stitchcuda.workspace.store import Store, get_tree, materialise, mended, put_tree, remember
from stitchcuda.writing import write_atomically, writing

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
