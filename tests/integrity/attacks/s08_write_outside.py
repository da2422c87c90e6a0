# row: S8
# reference: clocks/softmax_small.py
# runs: both
# written: independently
# what: leaves marker files (plain text, called stitch_marker_outside) wherever it can outside of its working folder: home, /tmp, /var/tmp, /dev/shm, the folders above, site-packages, beside every loaded module of the harness; then computes honestly
# base: softmax.py

import os, sys
places = {os.path.expanduser("~"), "/tmp", "/var/tmp", "/dev/shm", "/", "/usr/local/bin", os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(torch.__file__)), os.path.expanduser("~/.cache")}
above = os.getcwd()
for _ in range(4):
    above = os.path.dirname(above)
    places.add(above)
for m in list(sys.modules.values()):
    f = getattr(m, "__file__", None)
    if f and "site-packages" not in f and "/lib/python" not in f:
        places.add(os.path.dirname(os.path.abspath(f)))
wrote = []
for place in sorted(places):
    try:
        with open(os.path.join(place, "stitch_marker_outside"), "w") as f:
            f.write("left by s08_write_outside.py\n")
        wrote.append(place)
    except OSError:
        pass
print("outside files written:", wrote)
