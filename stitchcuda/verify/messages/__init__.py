"""How the judge and the workers talk: JSON lines, tensors as blocks of memory, build orders.

Where to look next: `verify/messages/wire.py`.
"""
