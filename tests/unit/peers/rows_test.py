#!/usr/bin/env python3
"""The rows of samples in which a peer times itself (peers/support/rows.py), on a simulated device and host.

usage: rows_test.py PEERS
"""
import contextlib
import io
import sys
import unittest


class Device:
    """A queue: an entry starts when it has been launched and the previous one has ended. Launching takes time on the host."""

    def __init__(self, launch_s, work_s):
        self.launch_s, self.work_s = launch_s, work_s
        self.host = self.free = 0.0  # now, and when the device has done what is queued
        self.log = []

    def queue(self, what, device_s, host_s=0.0):
        self.host += host_s
        self.free = max(self.free, self.host) + device_s
        self.log.append(what)

    def perf_counter(self):
        return self.host

    def new_event(device):
        class Event:
            def record(self):
                device.queue("event", 0)
                self.at = device.free

            def synchronize(self):
                device.host = max(device.host, self.at)

            def elapsed_time(self, other):
                return (other.at - self.at) * 1e3

        return Event()

    def work(self):
        self.queue("work", self.work_s, self.launch_s)


class Rows(unittest.TestCase):
    def timer(self, launch_s, work_s, capture=None):
        device = Device(launch_s, work_s)
        rows.time = device  # for perf_counter
        timer = rows.RowTimer(
            device.new_event, lambda: device.queue("flush", 50e-6), lambda time_s: device.queue("delay", time_s),
            capture and (lambda *row: capture(device, *row)))
        return device, timer

    def test_long_work_hides_its_launches_behind_the_work_before(self):
        device, timer = self.timer(launch_s=200e-6, work_s=5e-3)
        timer.times(device.work, True, 1)  # launch time still unknown: it may be visible in the sample
        times_s = timer.times(device.work, True, 10)
        self.assertEqual(len(times_s), 10)
        for time_s in times_s:
            self.assertAlmostEqual(time_s, 5e-3, delta=1e-9)
        self.assertEqual(device.log.count("delay"), 1)
        self.assertEqual(device.log.count("flush"), 11)

    def test_short_work_waits_behind_a_delay_and_rows_are_limited(self):
        device, timer = self.timer(launch_s=200e-6, work_s=30e-6)
        self.assertGreater(timer.times(device.work, True, 1)[0], 100e-6)  # the first launch is visible
        times_s = timer.times(device.work, True, 64)
        self.assertEqual(len(times_s), 5)  # a millisecond of launching
        for time_s in times_s:
            self.assertAlmostEqual(time_s, 30e-6, delta=1e-9)

    def test_short_work_is_recorded_once_and_replayed(self):
        recorded = []

        def capture(device, work, first, cold, count):
            recorded.append((first, cold, count))
            return lambda: [device.work_s] * count

        device, timer = self.timer(launch_s=200e-6, work_s=30e-6, capture=capture)
        forward = lambda: self.fail("the forward pass belongs to what is recorded")
        timer.times(device.work, True, 1, forward)
        work = device.work
        for count, expected in ((20, 20), (39, 20), (7, 7), (64, 64), (64, 64)):
            self.assertEqual(timer.times(work, True, count, forward), [30e-6] * expected)
        self.assertEqual(recorded, [(forward, True, 20), (forward, True, 64)])
        timer.times(work, False, 64, forward)
        timer.times(lambda: device.work(), False, 64, forward)  # the same kernel on other tensors
        timer.forget_recorded()
        timer.times(work, False, 1, forward)
        self.assertEqual(recorded[2:], [(forward, False, 64)] * 2 + [(forward, False, 1)])
        self.assertNotIn("delay", device.log)

    def test_long_work_is_not_recorded(self):
        device, timer = self.timer(200e-6, 5e-3, lambda *row: self.fail("its launches hide"))
        timer.times(device.work, True, 1)
        self.assertEqual(len(timer.times(device.work, True, 10)), 10)

    def test_work_that_cannot_be_recorded_waits_behind_a_delay(self):
        tried, order = [], []

        def capture(device, work, first, cold, count):
            tried.append(count)
            raise RuntimeError("the stream is capturing")

        device, timer = self.timer(launch_s=200e-6, work_s=30e-6, capture=capture)
        forward = lambda: order.append(len(device.log))
        timer.times(device.work, True, 1, forward)
        launched = len(device.log)
        with contextlib.redirect_stderr(io.StringIO()) as log:
            for _ in range(2):
                self.assertLessEqual(len(timer.times(device.work, True, 64, forward)), 5)
        self.assertEqual(tried, [64])
        self.assertEqual(order, [launched])  # once more, before what is launched from here on
        self.assertIn("the stream is capturing", log.getvalue())
        timer.forget()
        timer.times(device.work, True, 1)
        with contextlib.redirect_stderr(io.StringIO()):
            timer.times(device.work, True, 64)
        self.assertEqual(tried, [64, 64])

    def test_a_warm_cache_is_left_alone(self):
        device, timer = self.timer(launch_s=10e-6, work_s=1e-3)
        timer.times(device.work, False, 4)
        self.assertNotIn("flush", device.log)

    def test_other_work_starts_anew(self):
        device, timer = self.timer(launch_s=200e-6, work_s=5e-3)
        timer.times(device.work, True, 3)
        timer.forget()
        self.assertEqual((timer.launch_s, timer.work_s), (0, 0))


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    from support import rows

    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
