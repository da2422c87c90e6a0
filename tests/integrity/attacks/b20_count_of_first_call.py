# row: B20
# reference: calls/moving_mean.py
# runs: both
# what: each call is taken for the first: the mean so far has no weight, the counter is right
# base: moving_mean.py

COUNT = "1"
