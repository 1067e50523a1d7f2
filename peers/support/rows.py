"""Samples in a row, for any framework, by the rule of longspan's own stopwatch: docs/reference/metrics.md, "On a GPU"."""

import time

QUEUED_S = 1e-3  # the most launch time to hide behind a delay: more would fill the driver's queue
LONGEST_DELAY_S = 0.1


class RowTimer:
    """`new_event()` returns a framework's CUDA event, `empty_cache()` queues writes of twice the L2's size, and `delay(time_s)`
    queues work that keeps the device busy for at least that long."""

    def __init__(self, new_event, empty_cache, delay):
        self.new_event, self.empty_cache, self.delay = new_event, empty_cache, delay
        self.events = []
        self.forget()

    def forget(self):
        """Call before timing other work."""
        self.launch_s = self.work_s = 0.0  # launch time on the host and device time of the last run

    def times(self, work, cold, count):
        """Takes at most `count` samples. The L2 is emptied before each, and events surround the work. There is no pause between
        samples, so the device stays loaded. Launches are hidden behind the previous work or, if launching takes longer than
        the work, all together behind a delay."""
        hides = self.work_s > 2 * self.launch_s
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
