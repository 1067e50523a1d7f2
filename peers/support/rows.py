"""Samples in a row, for any framework, by the rule of longspan's own stopwatch: docs/reference/metrics.md, "On a GPU"."""

import sys
import time

QUEUED_S = 1e-3  # the most launch time to hide behind a delay: more would fill the driver's queue
LONGEST_DELAY_S = 0.1


class RowTimer:
    """`new_event()` returns a framework's CUDA event, `empty_cache()` queues writes of twice the L2's size, and `delay(time_s)`
    queues work that keeps the device busy for at least that long. `capture(work, first, cold, count)`, if the framework can, records a
    row as a CUDA graph and returns a function that replays it and returns its times; an error says that `work` cannot be recorded."""

    def __init__(self, new_event, empty_cache, delay, capture=None):
        self.new_event, self.empty_cache, self.delay, self.capture = new_event, empty_cache, delay, capture
        self.events = []
        self.forget()

    def forget(self):
        """Call before timing other work."""
        self.launch_s = self.work_s = 0.0  # launch time on the host and device time of the last run that was launched
        self.forget_recorded()
        self.can_record = self.capture is not None

    def forget_recorded(self):
        self.recorded = None  # (work, cold, count, replay) of the row that was recorded last

    def times(self, work, cold, count, first=None):
        """Takes at most `count` samples. The L2 is emptied before each, and events surround the work. There is no pause between
        samples, so the device stays loaded. Launches are hidden behind the previous work. If launching takes longer than half of
        the work, the row is recorded as a graph and replayed, or else all launches hide together behind a delay, at which the device rests.
        first: what must have run before `work`, as a forward pass before its backward pass; the same `work` sees the same tensors."""
        if self.launch_s and not self.hides() and self.can_record:
            replay = self.record(work, first, cold, count)
            if replay is not None:
                return replay()[:count]
        return self.launched(work, cold, count)

    def hides(self):
        return self.work_s > 2 * self.launch_s

    def record(self, work, first, cold, count):
        """The replay of a row of more than half of `count` samples; None if `work` cannot be recorded."""
        if self.recorded and self.recorded[:2] == (work, cold) and 2 * self.recorded[2] > count:
            return self.recorded[3]
        self.recorded = None  # its memory is needed
        try:
            self.recorded = (work, cold, count, self.capture(work, first, cold, count))
            return self.recorded[3]
        except Exception as error:  # whatever a framework raises where its work waits for the device, or launches beside the stream
            print("rows are launched, as a CUDA graph cannot record them:", " ".join(str(error).split())[:300], file=sys.stderr)
            self.can_record = False
            if first is not None:
                first()  # again, on the stream of the launches that follow
            return None

    def launched(self, work, cold, count):
        hides = self.hides()
        if not hides:
            count = max(1, min(count, int(QUEUED_S / max(self.launch_s, 1e-6))))
        while len(self.events) < count:
            self.events.append((self.new_event(), self.new_event()))
        if self.launch_s:
            queued = 1 if hides else count
            self.delay(min(1.5 * queued * self.launch_s + 50e-6, LONGEST_DELAY_S))
        for begin, end in self.events[:count]:
            if cold:
                self.empty_cache()
            begin.record()
            begin_s = time.perf_counter()
            work()
            self.launch_s = time.perf_counter() - begin_s
            end.record()
        self.events[count - 1][1].synchronize()
        times_s = [begin.elapsed_time(end) * 1e-3 for begin, end in self.events[:count]]
        self.work_s = times_s[-1]
        return times_s
