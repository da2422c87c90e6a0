# row: A6
# reference: results/special_token.py
# runs: both
# what: treats a token like any other that the reference treats apart
# base: special_token.py

APART = "false"
