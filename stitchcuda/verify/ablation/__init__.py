"""Is each kernel needed? Kernels and constants are left out in turn; the output must then be wrong.

Where to look next: `verify/ablation/ablation.py`.
"""
