"""Are two outputs the same? The error bound from float64, and how far a tensor is from it.

Where to look next: `verify/compare/bound.py`.
"""
