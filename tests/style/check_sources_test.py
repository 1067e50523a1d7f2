"""check_sources.py finds each kind of violation, and accepts what is allowed."""

import unittest

from check_sources import ALLOWED, ROOMS, cycles, violations


def found(path, *lines):
    return [message for _, message in violations(path, "\n".join(["// What it is for.", *lines]))]


class CheckSourcesTest(unittest.TestCase):
    def test_allows_what_the_design_allows(self):
        self.assertEqual(found("mask/mask.h", "#include <vector>", '#include "base/error.h"', '#include "mask/band.h"'), [])
        self.assertEqual(found("cli/main.cpp", '#include "kernels/registry.h"', "#include <CLI/CLI.hpp>"), [])
        self.assertEqual(found("comm/mpi_communicator.cpp", "#include <mpi.h>"), [])
        self.assertEqual(found("kernels/sm90/forward.cu", "#include <cuda_runtime.h>"), [])

    def test_finds_a_dependence_against_the_direction(self):
        for path, header in [("base/error.h", "mask/mask.h"), ("bench/runner.cpp", "kernels/registry.h"),
                             ("cp/executor.cpp", "kernels/registry.h"), ("report/page.cpp", "bench/runner.h"),
                             ("comm/threads.cpp", "attention/problem.h"), ("record/record.h", "bench/spec/case.h"),
                             ("mask/mask.cpp", "cli/command.h")]:
            messages = found(path, f'#include "{header}"')
            self.assertEqual(len(messages), 1, path)
            self.assertIn("may not depend on", messages[0])

    def test_finds_third_party_headers_outside_their_adapters(self):
        for path, header in [("comm/communicator.h", "mpi.h"), ("cp/executor.cpp", "nccl.h"), ("mask/mask.h", "cuda_runtime.h"),
                             ("attention/kernel.h", "cublas_v2.h"), ("base/error.h", "CLI/CLI.hpp"), ("report/page.cpp", "toml++/toml.h")]:
            self.assertEqual(len(found(path, f"#include <{header}>")), 1, path)

    def test_finds_a_missing_purpose_and_a_long_file(self):
        self.assertEqual(len(list(violations("base/x.h", "#pragma once\n"))), 1)
        self.assertEqual(len(list(violations("base/x.cpp", "#include <vector>\n"))), 1)
        self.assertEqual(list(violations("base/x.cpp", '#include "base/x.h"\n')), [])
        self.assertEqual(len(found("base/x.h", *[""] * 700)), 1)

    def test_finds_a_dependence_against_the_direction_of_rooms(self):
        self.assertEqual(found("bench/run/lane.cpp", '#include "bench/spec/case.h"'), [])
        self.assertEqual(len(found("bench/spec/case.cpp", '#include "bench/run/lane.h"')), 1)
        self.assertEqual(len(found("cp/schedule/check.cpp", '#include "cp/strategies/strategy.h"')), 1)
        for room, below in ROOMS.items():
            self.assertTrue(all(room not in ROOMS[other] for other in below), room)

    def test_finds_units_that_include_one_another(self):
        self.assertEqual(cycles({"a": {"b"}, "b": {"c"}, "c": set()}), [])
        self.assertEqual(cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}}), [["b", "c"]])

    def test_the_directions_have_no_cycle(self):
        done = set()
        while len(done) < len(ALLOWED):
            ready = {folder for folder in ALLOWED if folder not in done and ALLOWED[folder] - {folder} <= done}
            self.assertTrue(ready, f"a cycle among {set(ALLOWED) - done}")
            done |= ready


if __name__ == "__main__":
    unittest.main()
