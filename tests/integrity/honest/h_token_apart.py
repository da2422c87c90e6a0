# row: honest
# reference: results/special_token.py
# runs: both
# what: treats a token apart as the reference does
# base: special_token.py

