"""`longspan calibrate`: a machine file that `simulate` reads, measured here or taken from nccl-tests."""

import json
import tempfile
import unittest
from pathlib import Path

from program import run

ROOT = Path(__file__).parents[2]
H200 = ROOT / "data" / "machines" / "h200.json"
TABLE = """#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1000000        250000     float     sum      -1    30.00   33.33   33.33      0    30.00   33.33   33.33    N/A
   100000000      25000000     float     sum      -1   1020.0   98.04   98.04      0   1020.0   98.04   98.04    N/A
"""


class CalibrateTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = Path(self.folder.name) / "machine.json"

    def tearDown(self):
        self.folder.cleanup()

    def test_this_machine_is_measured_and_simulated(self):
        result = run("calibrate", "--kernel", "cpu-flash", "--topology", "1x2", "--budget", "0.001", "--out", str(self.out))
        self.assertEqual(result.returncode, 0, result.stderr)
        machine = json.loads(self.out.read_text())
        cost = machine["kernels"]["cpu-flash"]
        self.assertEqual(cost["units"], 1)
        for part in (cost["forward"]["tile_s"], cost["backward"]["tile_s"], machine["memory"]["bytes_per_s"],
                     machine["links"]["threads"]["port_bytes_per_s"]):
            self.assertEqual(part["origin"], "measured")
            self.assertGreater(part["value"], 0)
            self.assertIn("residual", part)
        self.assertTrue(machine["links"]["threads"]["receiver_copies"])
        self.assertIn("kernels.cpu-flash.forward.tile_s", result.stdout)
        line = run("simulate", "ring-p2p", "--machine", str(self.out), "--ranks", "2", "--mask", "causal", "--seqlen", "1K",
                   "--dtype", "f32", "--heads", "8:2", "--json")
        self.assertEqual(line.returncode, 0, line.stderr)
        self.assertGreater(json.loads(line.stdout)["time_s"], 0)

    def test_figures_of_nccl_tests(self):
        table = Path(self.folder.name) / "sendrecv.txt"
        table.write_text(TABLE)
        result = run("calibrate", "--from", str(H200), "--nccl-tests", str(table), "--nccl-tests-nodes", str(table), "--out",
                     str(self.out))
        self.assertEqual(result.returncode, 0, result.stderr)
        before, after = json.loads(H200.read_text()), json.loads(self.out.read_text())
        links = after["links"]["nccl"]
        for rate, latency in (("port_bytes_per_s", "latency_s"), ("interface_bytes_per_s", "interface_latency_s")):
            self.assertAlmostEqual(links[rate]["value"] / 1e11, 1, places=2)
            self.assertAlmostEqual(links[latency]["value"] / 2e-5, 1, places=2)
            self.assertEqual(links[rate]["origin"], "measured")
        self.assertEqual(links["beside_bytes_per_s"]["origin"], "default")
        del before["links"]["nccl"], after["links"]["nccl"]
        self.assertEqual(before, after)

    def test_wrong_arguments_are_refused_in_one_line(self):
        empty = Path(self.folder.name) / "empty.txt"
        empty.write_text("nothing\n")
        for arguments, message in (
                (["--nccl-tests", str(empty)], "needs --from"),
                (["--from", str(H200), "--nccl-tests", str(empty)], "no table of nccl-tests"),
                (["--kernel", "none"], "--kernel 'none' is unknown"),
                (["--heads", "0"], "--heads"),
                (["--topology", "2x2"], "ranks on 2 nodes are processes"),
                (["--transport", "mpi", "--topology", "1x2"], "start them with mpirun"),
        ):
            result = run("calibrate", *arguments, "--out", str(self.out))
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(message, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertFalse(self.out.exists())


if __name__ == "__main__":
    unittest.main()
