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
        links = machine["links"]["threads"]
        for part in (cost["forward"]["tile_s"], cost["backward"]["tile_s"], machine["memory"]["bytes_per_s"],
                     links["port_bytes_per_s"], links["latency_s"]):
            self.assertEqual(part["origin"], "measured")
            self.assertGreaterEqual(part["value"], 0)
            self.assertIn("residual", part)
        for part in (cost["forward"]["tail"], cost["backward"]["tail"], links["beside_bytes_per_s"]):
            self.assertEqual(part["origin"], "default")
            self.assertNotIn("residual", part)
        self.assertTrue(links["receiver_copies"])
        self.assertIn("kernels.cpu-flash.forward.tile_s", result.stdout)
        line = run("simulate", "ring-p2p", "--machine", str(self.out), "--ranks", "2", "--mask", "causal", "--seqlen", "1K",
                   "--dtype", "f32", "--heads", "8:2", "--json")
        self.assertEqual(line.returncode, 0, line.stderr)
        self.assertGreaterEqual(json.loads(line.stdout)["time_s"], 0)

    def test_three_ranks_tell_a_flow_from_a_port(self):
        first = Path(self.folder.name) / "first.json"
        result = run("calibrate", "--kernel", "cpu-flash", "--topology", "1x2", "--budget", "0.001", "--out", str(first))
        self.assertEqual(result.returncode, 0, result.stderr)
        result = run("calibrate", "--from", str(first), "--kernel", "cpu-flash", "--topology", "1x3", "--budget", "0.001", "--out", str(self.out))
        self.assertEqual(result.returncode, 0, result.stderr)
        links = json.loads(self.out.read_text())["links"]["threads"]
        if "flow_bytes_per_s" in links:  # a rank sent more to two others than to one
            self.assertGreater(links["port_bytes_per_s"]["value"], links["flow_bytes_per_s"]["value"])
            self.assertIn("from each rank to all 2 others", links["port_bytes_per_s"]["source"])
            self.assertIn("around the ranks of a node", links["flow_bytes_per_s"]["source"])
        else:
            self.assertIn("around the ranks of a node", links["port_bytes_per_s"]["source"])

    def test_figures_of_nccl_tests(self):
        table = Path(self.folder.name) / "sendrecv\udcff.txt"  # a name that is not UTF-8
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
        other = Path(self.folder.name) / "other.txt"
        other.write_text("no machine\n")
        mpi = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
        on_cpu = ["--kernel", "cpu-flash", "--topology", "1x2"]
        for arguments, environment, message in (
                (["--nccl-tests", str(empty)], {}, "needs --from"),
                (["--from", str(H200), "--nccl-tests", str(empty)], {}, "no table of nccl-tests"),
                (["--from", str(H200), "--nccl-tests", "/none"], {}, "/none"),
                (["--kernel", "none"], {}, "--kernel 'none' is unknown"),
                (["--heads", "0"], {}, "--heads"),
                (["--name", "a\nb"], {}, "--name 'a b' must be UTF-8 without control characters"),
                (["--name", "a\udcff"], {}, r"--name 'a\xff' must be UTF-8"),
                (["--kernel", "cpu-flash", "--topology", "1x1"], {}, "1 rank has no links to measure; give --topology"),
                (["--kernel", "cpu-flash", "--topology", "2x2"], {}, "ranks on 2 nodes are processes"),
                ([*on_cpu, "--transport", "mpi"], {}, "start them with mpirun"),
                ([*on_cpu, "--transport", "nccl"], {}, "NCCL connects GPUs; cpu-flash runs on the CPU"),
                ([*on_cpu, "--transport", "nccl"], mpi, "NCCL connects GPUs; cpu-flash runs on the CPU"),
                (on_cpu, mpi, "Open MPI started 2 processes, but the ranks are threads; add --transport mpi"),
        ):
            result = run("calibrate", *arguments, "--out", str(self.out), env=environment)
            self.assertEqual(result.returncode, 2, (arguments, result.stderr))
            self.assertIn(message, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertEqual(result.stderr.count("/none"), "/none" in arguments, result.stderr)
            self.assertFalse(self.out.exists())
        result = run("calibrate", *on_cpu, "--out", str(other))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("exists, and is not a machine file", result.stderr)
        self.assertEqual(other.read_text(), "no machine\n")

    def test_a_bad_file_to_write_is_refused_before_the_input_is_read(self):
        result = run("calibrate", "--from", "/none", "--out", "/none/machine.json")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("--out /none/machine.json: cannot be written", result.stderr)


if __name__ == "__main__":
    unittest.main()
