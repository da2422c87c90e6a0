"""What a program is called with: secret input sets, their variants, and fresh contents for timed calls.

Where to look next: `verify/inputs/secret_inputs.py`, then `verify/inputs/variants.py`.
"""
