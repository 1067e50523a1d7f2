#!/usr/bin/env python3
"""Opens reports in a headless Chromium. Filters must apply to both charts and tables, and the page may not access the
network. Exits with 77 (skipped) if there is no browser. Usage: report_page_test.py LONGSPAN [-v] [TEST...]
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from browser import Browser, Missing  # noqa: E402

SKIPPED = 77
LONGSPAN = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "build/longspan"

# The content of a chart: its labels, and the name and points of each line or bar group.
CHART = """const chart = Chart.getChart(arguments[0]);
return chart && {labels: chart.data.labels, series: chart.data.datasets.map((d) => [d.label, d.data])};"""
COLUMN = """return [...document.querySelectorAll(`#cases tbody td[data-column="${arguments[0]}"]`)].map((n) => n.textContent);"""


def write_report(folder, name, *kinds, options=()):
    files = []
    for kind in kinds:
        files.append(os.path.join(folder, kind + ".jsonl"))
        subprocess.run([sys.executable, os.path.join(HERE, "synthetic_results.py"), files[-1], "--kind", kind],
                       check=True)
    page = os.path.join(folder, name + ".html")
    subprocess.run([LONGSPAN, "report", *options, *files, "-o", page], check=True, stdout=subprocess.DEVNULL)
    return page


class ReportPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="longspan-report-")
        cls.cpu = write_report(cls.folder.name, "cpu", "cpu")
        cls.hostile = write_report(cls.folder.name, "hostile", "hostile")
        cls.sparse = write_report(cls.folder.name, "sparse", "sparse")
        cls.parallel = write_report(cls.folder.name, "parallel", "parallel")
        cls.deterministic = write_report(cls.folder.name, "deterministic", "deterministic")
        cls.sinks = write_report(cls.folder.name, "sinks", "sinks")
        cls.builds = write_report(cls.folder.name, "builds", "builds")
        cls.experiment = write_report(cls.folder.name, "experiment", "gpu", options=("--experiment", "1"))
        cls.simulated = write_report(cls.folder.name, "simulated", "simulated")
        cls.workload = write_report(cls.folder.name, "workload", "workload")
        cls.both = write_report(cls.folder.name, "both", "cpu", "gpu")
        with open(os.path.join(cls.folder.name, "cpu.jsonl"), encoding="utf-8") as file:
            cls.cases = [c for c in map(json.loads, file) if c["type"] == "case"]
        cls.browser = Browser().__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        cls.folder.cleanup()

    def open(self, page, fragment=""):
        self.browser.open(page, fragment)
        self.browser.console_errors()  # discard those of the previous page
        self.browser.requests()
        self.browser.open(page, fragment)

    def tearDown(self):
        self.assertEqual(self.browser.console_errors(), [], "the page wrote errors to the console")

    def measured(self, **axes):
        return [c for c in self.cases if c["status"] == "ok" and all(c["case"][k] == v for k, v in axes.items())]

    def chart(self, canvas):
        chart = self.browser.run(CHART, canvas)
        self.assertIsNotNone(chart, f"there is no chart {canvas}")
        return chart

    def show_all(self):
        self.browser.run("const b = document.getElementById('all-rows'); if (b) b.click();")

    def test_asks_for_nothing(self):
        self.open(self.cpu)
        asked = [url for url in self.browser.requests() if not url.startswith(("file://", "about:", "data:", "blob:"))]
        self.assertEqual(asked, [])
        self.assertEqual([url for url in self.browser.requests() if url.startswith("file://")], [],
                         "the page read another file")

    def test_shows_what_was_measured(self):
        self.open(self.cpu)
        chart = self.chart("over-length-forward")
        self.assertEqual(chart["labels"], ["512", "1K", "2K"])
        self.assertEqual([label for label, _ in chart["series"]], ["cpu-flash", "cpu-naive"])
        mask = self.browser.run("return document.getElementById('pick-mask').value")
        for label, points in chart["series"]:
            for length, point in zip((512, 1024, 2048), points):
                expected = self.measured(kernel=label, mask=mask, seqlen=length, direction="forward")[0]
                self.assertAlmostEqual(point, expected["flops_per_s"] / 1e9, delta=1e-3 * point)
        self.show_all()
        self.assertEqual(len(self.browser.run(COLUMN, "kernel")), len(self.measured()))
        self.assertIn("timed out after 60 s in verification",
                      self.browser.run("return document.getElementById('unmeasured').textContent"))
        self.assertEqual(self.browser.run("return document.querySelectorAll('#masks canvas').length"), 13)

    def test_an_experiment_says_what_agrees_and_why_not(self):
        self.open(self.cpu)
        self.assertTrue(self.browser.run("return document.getElementById('experiment').hidden"))
        self.open(self.experiment)
        self.assertEqual(self.browser.run("return document.querySelector('h1').textContent"),
                         "FlashAttention-3 against SDPA and naive attention")
        claims = {claim["text"]: claim for claim in self.browser.run("""return [...document.querySelectorAll('#experiment .claim')].map((box) => ({
          text: box.querySelector('h3').lastChild.textContent, verdict: box.querySelector('h3 .verdict').textContent,
          why: box.querySelector('.why') ? box.querySelector('.why').textContent : '',
          rows: [...box.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))}))""")}
        # The made-up rates: fa3 0.86 of the ceiling, torch-cudnn 0.8, flex 0.55; torch-math has no memory above 16K.
        faster = claims["FlashAttention-3 is faster than FlexAttention, forward"]
        self.assertEqual((faster["verdict"], faster["why"]), ("agrees", ""))
        self.assertEqual([row[0] for row in faster["rows"]], ["8K", "16K", "24K", "32K", "40K", "48K"])
        self.assertRegex(faster["rows"][0][2], "^fa3: .* TFLOP/s$")
        memory = claims["Naive attention runs out of memory, forward"]
        self.assertEqual(memory["verdict"], "agrees in part")
        self.assertEqual([row[1] for row in memory["rows"]], ["does not agree"] + 4 * ["agrees"])
        self.assertIn("The paper's GPU has 80 GB", memory["why"])
        backward = claims["The backward pass has a lower rate than the forward pass, in FlashAttention-3 too"]
        self.assertEqual(len(backward["rows"]), 6)

    def test_a_workload_is_a_table_of_its_steps(self):
        self.open(self.cpu)
        self.assertTrue(self.browser.run("return document.getElementById('workloads').hidden"))
        self.open(self.workload)
        self.assertFalse(self.browser.run("return document.getElementById('workloads').hidden"))
        self.assertEqual(self.browser.run("return document.querySelector('#workloads h3').textContent"), "w.jsonl · 00 · 3 steps · 8 layers")
        heads = self.browser.run("return [...document.querySelectorAll('#workloads th')].map((n) => n.textContent)")
        rows = {row[0]: dict(zip(heads, row)) for row in self.browser.run("""return [...document.querySelectorAll('#workloads tr.step-times')]
          .map((row) => [...row.cells].map((cell) => cell.textContent))""")}
        self.assertEqual(list(rows), ["balanced, 4 ranks, sm90 bf16", "usp, 4 ranks, sm90 bf16"])  # the fastest first
        balanced, usp = rows.values()
        self.assertEqual((balanced["steps"], usp["steps"]), ("3 of 3", "2 of 3"))
        self.assertEqual((balanced["tokens"], balanced["pairs"], balanced["time"]), ("1.00", "1.27", "1.00"))
        self.assertRegex(balanced["p99"], " ms$")
        with open(os.path.join(self.folder.name, "workload.jsonl"), encoding="utf-8") as file:
            lines = [line for line in map(json.loads, file) if line["type"] == "case" and line["case"]["strategy"] == "balanced"]
        slowest = sum(line["time_s"] for line in lines if line["case"]["seqlen"] == 3 * 8192)
        self.assertAlmostEqual(float(balanced["p99"].split()[0]) / 1e3, slowest, delta=0.01 * slowest)
        self.assertIn("made to fail", self.browser.run("return document.getElementById('workloads').textContent"))
        for other in ("overview", "rows", "parallel", "unmeasured"):  # they leave the cases of workloads out
            self.assertTrue(self.browser.run(f"return document.getElementById('{other}').hidden"), other)

    def test_kernels_have_the_colours_of_their_tables(self):
        colours = """return [...document.querySelectorAll('.dot[data-kernel]')].map((n) => [n.dataset.kernel, n.style.getPropertyValue('--c')])"""
        self.open(self.both)
        shown = {name: {c for n, c in self.browser.run(colours) if n == name} for name in ("cpu-flash", "sm90", "flex", "some-new-kernel")}
        self.assertEqual([shown[name] for name in ("cpu-flash", "sm90", "flex")], [{"#0b62a8"}, {"#c8500a"}, {"#3b9bcb"}])
        self.assertEqual(len(shown["some-new-kernel"]), 1)
        self.assertEqual(self.browser.run("return document.getElementById('pick-mask').value"), "causal")

    def test_shows_where_the_ranks_time_went(self):
        self.open(self.parallel)
        rows = self.browser.run("""return [...document.querySelectorAll('#parallel-table tbody tr')].map((row) => ({
          cells: [...row.cells].map((cell) => cell.textContent), bars: row.querySelectorAll('svg.split rect').length}))""")
        self.assertEqual(len(rows), 3 * 2 * 3)
        self.assertEqual({row["cells"][0] for row in rows}, {"ulysses", "ring-p2p", "balanced"})
        self.assertEqual({row["bars"] for row in rows}, {4})
        # 3.3 on four ranks and 0.85 on one device: a rate per rank of 97 % of one device's.
        shares = [row["cells"][6] for row in rows if row["cells"][0] == "ulysses"]
        self.assertEqual(set(shares), {"97 %"})
        # A strategy measured with a later build is compared with that device, too.
        self.assertLessEqual({row["cells"][6] for row in rows if row["cells"][0] == "balanced"}, {"99 %", "100 %", "101 %"})

    def test_draws_strategies_side_by_side(self):
        self.open(self.parallel)
        panels = self.browser.run("""return [...document.querySelectorAll('#parallel-charts canvas')].map((canvas) => {
          const {labels, datasets} = Chart.getChart(canvas).data;
          return {id: canvas.id, labels, bars: datasets.filter((d) => d.type === 'bar').map((d) => [d.label, d.data, d.backgroundColor]),
                  one: datasets.find((d) => d.type === 'line').data};})""")
        self.assertEqual([panel["id"] for panel in panels], ["strategies-forward-8192", "strategies-backward-8192"])
        for panel in panels:
            self.assertEqual(panel["labels"], ["full", "causal", "causal_document"])
            self.assertEqual({label for label, _, _ in panel["bars"]}, {"ulysses", "ring-p2p", "balanced"})
            self.assertEqual(len({colour for _, _, colour in panel["bars"]}), 3)
            self.assertEqual(panel["one"], [None] * 3)  # no device was measured with a rank's tokens
        # The rate per rank is a quarter of the total rate, and equals the one in the table.
        table = self.browser.run("""return [...document.querySelectorAll('#parallel-table tbody tr')]
          .map((row) => [...row.cells].map((cell) => cell.textContent))""")
        for label, values, _ in panels[0]["bars"]:
            for mask, value in zip(panels[0]["labels"], values):
                said = [float(row[5]) for row in table if row[0] == label and row[1] == mask and row[3] == "forward"]
                self.assertAlmostEqual(said[0], value, delta=0.006 * value)
        self.assertEqual(self.browser.run("return document.getElementById('fastest-title').textContent"), "Fastest strategy")
        winners = set(self.browser.run("return [...document.querySelectorAll('#fastest .who')].map((e) => e.textContent)"))
        self.assertIn("balanced", winners)

    def test_draws_predictions_over_ranks_with_bands_and_measured_points(self):
        self.open(self.parallel)
        self.assertTrue(self.browser.run("return document.getElementById('predictions').hidden"))
        self.open(self.simulated)
        panels = self.browser.run("""return [...document.querySelectorAll('#predictions canvas')].map((canvas) => {
          const {labels, datasets} = Chart.getChart(canvas).data;
          return {labels, lines: datasets.filter((d) => d.band).map((d) => [d.label, d.data, d.band]),
                  points: datasets.filter((d) => !d.band).map((d) => [d.label, d.data])};})""")
        self.assertEqual(len(panels), 2)  # forward and backward
        for panel in panels:
            self.assertEqual(panel["labels"], ["4", "8", "32"])
            self.assertEqual([name for name, *_ in panel["lines"]], ["ulysses", "usp, context-first"])
            for _, rates, band in panel["lines"]:
                for got, wanted in zip(rates, (596, 592, 568)):
                    self.assertAlmostEqual(got, wanted, delta=0.01)
                self.assertAlmostEqual(band[0][0], 596 * 0.01 / 0.02, delta=0.1)
                self.assertAlmostEqual(band[0][1], 596 * 0.01 / 0.008, delta=0.1)
            self.assertEqual({name for name, _ in panel["points"]},
                             {"ulysses, measured", "ring-p2p, measured", "balanced, measured"})
            for _, rates in panel["points"]:
                self.assertGreater(rates[0], 0)
                self.assertEqual(rates[1:], [None, None])
        self.assertIn("Simulated, not measured, on nodes of synthetic GPUs", self.browser.run("return document.getElementById('predictions-note').textContent"))
        # Nothing simulated is among the cases.
        self.assertEqual(self.browser.run("return document.querySelectorAll('#parallel-table tbody tr').length"), 3 * 2 * 3)
        self.browser.run("""const pick = document.getElementById('pick-predicted');
          pick.value = [...pick.options].find((o) => o.value.startsWith('causal_document')).value;
          pick.dispatchEvent(new Event('change'));""")
        self.assertIn("predicted=causal_document", self.browser.run("return location.hash"))

    def test_draws_the_timeline_and_memory_of_a_simulated_pass(self):
        self.open(self.parallel)
        self.assertTrue(self.browser.run("return document.getElementById('timelines').hidden"))
        with tempfile.TemporaryDirectory() as folder:
            for name, more in (("one", []), ("other", ["--direction", "backward"])):
                line = subprocess.run([LONGSPAN, "simulate", "ring-p2p", "--machine", os.path.join(HERE, "..", "..", "data", "machines", "h200.json"),
                                       "--ranks", "4", "--mask", "causal", "--seqlen", "32K", "--json", *more], check=True, capture_output=True).stdout
                with open(os.path.join(folder, name + ".jsonl"), "wb") as file:
                    file.write(line)
            page = os.path.join(folder, "page.html")
            subprocess.run([LONGSPAN, "report", folder + "/one.jsonl", folder + "/other.jsonl", "-o", page], check=True, capture_output=True)
            with open(os.path.join(folder, "one.jsonl"), encoding="utf-8") as file:
                line = json.loads(file.read())
            self.open(page)
            drawn = self.browser.run("""return [...document.querySelectorAll('.timeline-stretch')].map((n) =>
              [Number(n.dataset.rank), n.dataset.what, Number(n.getAttribute('x')), Number(n.getAttribute('width'))])""")
            rounds = self.browser.run("return document.querySelectorAll('.timeline-memory').length")
            self.assertEqual(rounds, 4 * 4)
            self.assertEqual([each[:2] for each in drawn], [list(each) for each in zip(line["timeline"]["rank"], line["timeline"]["what"])])
            whole = max(x + width for _, _, x, width in drawn) - min(x for _, _, x, _ in drawn)
            longest = max(end - begin for begin, end in zip(line["timeline"]["begin_s"], line["timeline"]["end_s"]))
            self.assertAlmostEqual(max(width for *_, width in drawn) / whole, longest / line["time_s"], delta=0.01)
            table = self.browser.run("return [...document.querySelectorAll('#predictions-table tr.predicted')].map((row) => [...row.cells].map((c) => c.textContent))")
            self.assertEqual([row[:2] for row in table], [["4", "ring-p2p"]])
            self.assertEqual(self.browser.console_errors(), [])

    def test_draws_a_plan_rank_by_round(self):
        self.open(self.parallel)
        count = lambda what: self.browser.run(f"return document.querySelectorAll('#plan-picture {what}').length")
        chosen = self.browser.run("""const pick = document.getElementById('pick-plan');
          pick.value = [...pick.options].find((o) => o.textContent.startsWith('ring-p2p')).value;
          pick.dispatchEvent(new Event('change')); return pick.value;""")
        self.assertEqual(count(".plan-cell"), 4 * 4)
        self.assertEqual(count(".plan-owned"), 4 * 2)
        self.assertEqual(count(".plan-source"), 4 * 3)  # one source per rank in each round except the first
        said = self.browser.run("return document.querySelector('[data-rank=\"2\"][data-round=\"1\"] title').textContent")
        self.assertIn("receives kv from 1 (4.00 MiB)", said)
        self.assertIn("sends kv to 3", said)
        self.assertIn("plan=" + chosen, self.browser.run("return location.hash"))

    def test_hides_parallelism_where_there_is_none(self):
        self.open(self.cpu)
        self.assertTrue(self.browser.run("return document.getElementById('parallel').hidden"))

    def test_builds_of_one_file_share_a_row_and_compare_apart(self):
        self.open(self.builds)
        rows = self.browser.run("return [...document.querySelectorAll('#fastest tbody th')].map((n) => n.textContent)")
        self.assertEqual(len(rows), 1, rows)
        winners = self.browser.run("return [...document.querySelectorAll('#fastest .who')].map((n) => n.textContent)")
        self.assertEqual(winners, ["fa4", "sm90"])  # of the later build, and of the build that measured 32K

    def test_a_filter_moves_charts_and_tables_together(self):
        self.open(self.cpu)
        self.show_all()
        before = len(self.browser.run(COLUMN, "kernel"))
        self.browser.click('fieldset[data-axis="kernel"] button[data-value="cpu-naive"]')
        for canvas in ("over-length-forward", "by-mask-forward", "memory-forward"):
            self.assertEqual([label for label, _ in self.chart(canvas)["series"]], ["cpu-naive"], canvas)
        self.show_all()
        kernels = self.browser.run(COLUMN, "kernel")
        self.assertEqual(set(kernels), {"cpu-naive"})
        self.assertEqual(len(kernels), len(self.measured(kernel="cpu-naive")))
        self.assertLess(len(kernels), before)
        winners = self.browser.run("return [...document.querySelectorAll('#fastest .who')].map((n) => n.textContent)")
        self.assertEqual(set(winners), {"cpu-naive"})

        self.browser.click('fieldset[data-axis="mask"] button[data-value="causal"]')
        self.assertEqual(self.chart("by-mask-forward")["labels"], ["causal"])
        self.browser.click('fieldset[data-axis="direction"] button[data-value="backward"]')
        self.assertIsNone(self.browser.run(CHART, "over-length-forward"))
        self.show_all()
        self.assertEqual(len(self.browser.run(COLUMN, "kernel")),
                         len(self.measured(kernel="cpu-naive", mask="causal", direction="backward")))

        self.browser.click("#reset")
        self.show_all()
        self.assertEqual(len(self.browser.run(COLUMN, "kernel")), before)
        self.assertEqual(len(self.chart("over-length-forward")["series"]), 2)

    def test_filters_live_in_the_address(self):
        self.open(self.cpu)
        self.browser.click('fieldset[data-axis="kernel"] button[data-value="cpu-flash"]')
        address = self.browser.run("return location.hash")
        self.open(self.cpu, address)
        self.assertEqual(set(self.browser.run(COLUMN, "kernel")), {"cpu-flash"})

    def test_sorts_a_column_both_ways(self):
        self.open(self.cpu)
        self.show_all()
        expected = sorted((c["flops_per_s"] for c in self.measured()), reverse=True)
        self.browser.click('button[data-sort="rate"]')
        self.show_all()
        rates = [float(text) for text in self.browser.run(COLUMN, "rate")]
        self.assertEqual(len(rates), len(expected))
        for shown, rate in zip(rates, expected):
            self.assertAlmostEqual(shown, rate / 1e9, delta=0.006 * shown)
        self.assertEqual(self.browser.run("return document.querySelector('#cases th[aria-sort=descending]').textContent"),
                         "GFLOP/s")
        self.browser.click('button[data-sort="rate"]')
        self.show_all()
        rates = [float(text) for text in self.browser.run(COLUMN, "rate")]
        self.assertEqual(rates, sorted(rates))

    def test_the_measure_of_the_charts_can_be_changed(self):
        self.open(self.cpu)
        self.browser.click('button[data-metric="share"]')
        mask = self.browser.run("return document.getElementById('pick-mask').value")
        share = self.measured(kernel="cpu-flash", mask=mask, seqlen=512, direction="forward")[0]["share_of_ceiling"]
        self.assertAlmostEqual(self.chart("over-length-forward")["series"][0][1][0], 100 * share, delta=0.1)

    def test_a_swept_option_is_an_axis(self):
        self.open(self.sparse, "#over=density&o-block=64&heads=4%3A4")
        chart = self.chart("over-length-forward")
        self.assertEqual(chart["labels"], ["0.1", "0.2", "0.5", "0.8", "1"])
        self.assertEqual([label for label, _ in chart["series"]], ["sm90", "vsa", "flex"])
        self.browser.click('fieldset[data-axis="o-density"] button[data-value="0.5"]')
        self.assertEqual(set(self.browser.run(COLUMN, "mask")), {"uniform_block_sparseblock 64 density 0.5"})

    def test_the_same_bits_are_told_from_the_fast(self):
        self.open(self.deterministic)
        series = self.chart("over-length-backward")["series"]
        self.assertEqual([label for label, _ in series], ["sm90 · bits may differ", "sm90 · same bits"])
        self.assertEqual(sorted(self.browser.run(COLUMN, "deterministic")), 4 * ["bits may differ"] + 4 * ["same bits"])
        self.browser.click('fieldset[data-axis="deterministic"] button[data-value="same bits"]')
        self.assertEqual(len(self.chart("over-length-backward")["series"]), 1)
        self.browser.click("#cases tbody tr.case")
        self.assertIn("Two runs gave the same bitsyes", self.browser.run("return document.querySelector('#cases .details').textContent"))
        self.open(self.cpu)
        self.assertEqual(self.browser.run(COLUMN, "deterministic"), [])

    def test_sinks_are_told_from_plain_attention(self):
        self.open(self.sinks)
        series = self.chart("over-length-forward")["series"]
        self.assertEqual([label for label, _ in series], ["sm90 · sinks none", "sm90 · sinks true"])
        self.browser.click('fieldset[data-axis="x-sinks"] button[data-value="none"]')
        self.assertEqual(len(self.chart("over-length-forward")["series"]), 1)

    def test_a_row_gives_the_command_that_repeats_it(self):
        self.open(self.cpu)
        self.browser.click("#cases tbody tr.case")
        text = self.browser.run("return document.querySelector('#cases .details').textContent")
        case = self.browser.run("return document.querySelector('#cases tr.case').dataset.case")
        self.assertIn(next(c["command"] for c in self.cases if c["id"] == case), text)
        self.open(self.cpu, self.browser.run("return location.hash"))
        self.assertEqual(self.browser.run("return document.querySelector('#cases tr[aria-expanded=true]').dataset.case"), case)

    def test_nothing_in_a_file_becomes_markup(self):
        self.open(self.hostile)
        self.assertIsNone(self.browser.run("return window.broken ?? null"))
        self.assertEqual(self.browser.run("return document.querySelectorAll('img').length"), 0)
        self.assertEqual(self.browser.run("return document.querySelectorAll('script').length"), 3)
        self.browser.run("document.querySelectorAll('#filters button, #cases th button, #metric button, tr.case, summary')"
                         ".forEach((node) => node.click())")
        self.assertIsNone(self.browser.run("return window.broken ?? null"))
        self.assertEqual(self.browser.run("return document.querySelectorAll('img').length"), 0)
        self.assertIn("</script>", self.browser.run("return document.querySelector('h1').textContent"))

    def test_only_its_own_scripts_and_styles_apply(self):
        with open(self.cpu, encoding="utf-8") as file:
            text = file.read()
        injected = os.path.join(self.folder.name, "injected.html")
        with open(injected, "w", encoding="utf-8") as file:
            file.write(text.replace("</body>", "<script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
                                    "<p id=red style='color: rgb(255, 0, 0)'>x</p>"
                                    "<style>#red { color: rgb(255, 0, 0) }</style></body>"))
        self.open(injected)
        self.assertIsNone(self.browser.run("return window.broken ?? null"))
        self.assertNotEqual(self.browser.run("return getComputedStyle(document.getElementById('red')).color"), "rgb(255, 0, 0)")
        self.assertTrue(self.browser.run("return Chart.getChart(document.querySelector('canvas')) !== undefined"))
        refused = self.browser.console_errors()
        for directive in ("script-src", "style-src"):
            self.assertTrue(any(directive in error for error in refused), refused)

    def test_several_runs_are_told_apart(self):
        self.open(self.both)
        runs = self.browser.run("return [...document.querySelectorAll('fieldset[data-axis=run] button')].map((b) => b.textContent)")
        self.assertEqual(runs, ["cpu", "gpu"])
        self.browser.click('fieldset[data-axis="run"] button[data-value="gpu"]')
        self.show_all()
        self.assertIn("sm90", set(self.browser.run(COLUMN, "kernel")))
        self.assertNotIn("cpu-flash", set(self.browser.run(COLUMN, "kernel")))

    def test_nothing_is_wider_than_the_window(self):
        for width in (390, 768, 1024, 1440):
            with Browser(width=width, height=844) as browser:
                for page in (self.cpu, self.both, self.hostile):
                    browser.open(page)
                    self.assertLessEqual(browser.run("return document.documentElement.scrollWidth"), width, page)
                    self.assertEqual(browser.console_errors(), [])


if __name__ == "__main__":
    try:
        Browser()
    except Missing as missing:
        print(f"skipped: {missing}")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
