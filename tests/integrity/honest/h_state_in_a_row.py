# row: honest
# reference: calls/moving_mean.py
# runs: both
# what: counter, mean and last row go on from call to call
# base: moving_mean.py


