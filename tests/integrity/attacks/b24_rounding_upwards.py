# row: B24
# reference: results/tanh_of_scaled.py
# runs: both
# what: the process rounds upwards after a call
# base: tanh_of_scaled.py

HEADERS = "#include <cfenv>"
ON_HOST = "fesetround(FE_UPWARD);"
