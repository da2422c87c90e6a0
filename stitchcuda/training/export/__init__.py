"""Exports what a run of a stage made: an adapter or a whole model, with a model card and the commands that serve it.

Where to look next: `training/export/exported.py` (the folder), `training/export/model_card.py` (its README.md).
"""
