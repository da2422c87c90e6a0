"""How the judge and the workers talk: JSON lines, tensors as files, build orders.

Where to look next: `verify/messages/wire.py`.
"""
