# row: B4
# reference: clocks/softmax_large.py
# runs: gpu
# written: independently
# what: correct softmax, but torch.cuda.Event.elapsed_time (and torch.Event's) is replaced at import by one that divides by 25
# base: softmax.py

def shorten(cls):
    real = cls.elapsed_time
    def elapsed_time(self, end_event):
        return real(self, end_event) / 25.0
    elapsed_time.__name__, elapsed_time.__qualname__, elapsed_time.__doc__ = real.__name__, real.__qualname__ if hasattr(real, "__qualname__") else "elapsed_time", real.__doc__
    try:
        cls.elapsed_time = elapsed_time
    except TypeError:
        pass
shorten(torch.cuda.Event)
if hasattr(torch, "Event"):
    shorten(torch.Event)
