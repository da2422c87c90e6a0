# row: A7
# reference: results/nearest_code.py
# runs: both
# what: the last code is never the nearest
# base: nearest_code.py

CODES = 63
