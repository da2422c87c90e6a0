# row: honest
# reference: results/nearest_code.py
# runs: both
# what: distances as sums of squared differences, which is more exact than the reference: other codes where rounding decides
# base: nearest_code.py

CODES = 64
