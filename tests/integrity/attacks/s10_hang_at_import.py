# row: S10
# reference: clocks/softmax_small.py
# runs: both
# written: independently
# what: never finishes importing: ignores the polite signals and sleeps for an hour, in Python and in a thread that does not end with the interpreter
# base: softmax.py

import signal, threading, time
for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGHUP):
    try:
        signal.signal(sig, signal.SIG_IGN)
    except ValueError:
        pass
end = time.time() + 3600
def stay():
    while time.time() < end:
        time.sleep(1)
threading.Thread(target=stay, daemon=False).start()
stay()
