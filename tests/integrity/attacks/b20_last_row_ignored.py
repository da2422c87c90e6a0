# row: B20
# reference: calls/moving_mean.py
# runs: both
# what: a buffer outside of the state_dict is written and never read
# base: moving_mean.py

LAST = "0.f"
