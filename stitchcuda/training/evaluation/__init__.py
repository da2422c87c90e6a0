"""Evaluates checkpoints of a model: writes answers to problems, has them judged, and compares figures with their intervals.

Where to look next: `training/evaluation/evaluate.py` (all of it in order), `training/export/exported.py` (what comes after).
"""
