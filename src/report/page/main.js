// Connects filters, charts and tables.

const view = {
  metric: undefined, over: undefined, chartMask: undefined, chartLength: undefined, predicted: undefined, held: undefined, timeline: undefined, sort: {by: undefined, down: false}, allRows: false, case: undefined, plan: undefined, ranks: undefined,
  set(values) {  // without redrawing
    Object.assign(view, values);
    writeAddress({metric: view.metric, over: view.over, chartmask: view.chartMask, chartlength: view.chartLength, case: view.case, plan: view.plan, ranks: view.ranks, predicted: view.predicted, held: view.held, timeline: view.timeline,
      sort: view.sort.by && (view.sort.down ? '-' : '') + view.sort.by});
  },
  change(values) {
    view.set(values);
    draw();
  },
};

function readView() {
  const wanted = readAddress();
  view.metric = wanted.get('metric') || undefined;
  view.over = wanted.get('over') || undefined;
  view.chartMask = wanted.get('chartmask') || undefined;
  view.chartLength = wanted.get('chartlength') || undefined;
  view.case = wanted.get('case') || undefined;
  view.plan = wanted.get('plan') || undefined;
  view.ranks = wanted.get('ranks') || undefined;
  view.predicted = wanted.get('predicted') || undefined;
  view.held = wanted.get('held') || undefined;
  view.timeline = wanted.get('timeline') || undefined;
  const sort = wanted.get('sort') || '';
  view.sort = {by: sort.replace(/^-/, '') || undefined, down: sort.startsWith('-')};
}

function drawLead() {
  const devices = unique(data.setups.map((s) => s.device)), started = data.setups.flatMap((s) => s.runs.map((r) => r.started))
    .filter(Boolean).map((t) => t.slice(0, 10)).sort();
  const ceilings = data.setups.flatMap((s) => ceilingsOf(s).map((c) => `${c.dtype} ${c.text}` + (manySetups ? ` (${s.label})` : '')));
  byId('lead').textContent = [devices.join(', '),
    started.length ? (started[0] === started[started.length - 1] ? started[0] : `${started[0]} to ${started[started.length - 1]}`) : null,
    ceilings.length ? 'ceiling ' + ceilings.slice(0, 4).join(', ') : null].filter(Boolean).join(' · ');
  byId('warnings').replaceChildren(...data.warnings.map((w) => el('p', {class: 'warning'}, w)));
}

function draw() {
  const shown = shownCases();
  updateFilters(shown);
  drawOverview(shown);
  drawFastest(shown);
  drawCharts(shown, view);
  drawKernels(shown);
  drawShares(shown);
  drawParallel(shown, view);
  drawPredictions(view);
  drawTimelines(view);
  drawAccuracy(shown);
  drawMasks(shown);
  drawUnmeasured(shown);
  drawRows(shown, view);
}

function openLinkedCase() {
  if (!view.case) return;
  const row = document.querySelector(`tr.case[data-case="${CSS.escape(view.case)}"]`);
  if (!row) return;
  row.click();
  row.scrollIntoView({block: 'center'});
}

readView();
if (!cases.some((c) => c.id === view.case)) view.case = undefined;
view.allRows = Boolean(view.case);
buildFilters(() => view.change({allRows: false}));
byId('pick-over').onchange = (event) => view.change({over: event.target.value, chartMask: undefined});
byId('pick-mask').onchange = (event) => view.change({chartMask: event.target.value});
byId('pick-length').onchange = (event) => view.change({chartLength: event.target.value});
byId('pick-plan').onchange = (event) => view.change({plan: event.target.value});
byId('pick-ranks').onchange = (event) => view.change({ranks: event.target.value});
byId('pick-predicted').onchange = (event) => view.change({predicted: event.target.value});
byId('pick-timeline').onchange = (event) => view.change({timeline: event.target.value});
byId('pick-held').onchange = (event) => view.change({held: event.target.value});
byId('csv').onclick = () => downloadCsv(sortCases(shownCases(), view.sort));
byId('filter-box').open = window.innerWidth >= 1000;
drawLead();
drawExperiment();
drawWorkloads();
drawRuns();
draw();
openLinkedCase();

const repaint = () => {
  document.querySelectorAll('.dot[data-kernel]').forEach((node) => node.style.setProperty('--c', kernelColour(node.dataset.kernel)));
  draw();
};
darkScheme.addEventListener('change', repaint);
let drawnWidth = window.innerWidth, timer;
window.addEventListener('resize', () => {
  clearTimeout(timer);
  timer = setTimeout(() => {
    // Redraw only on a change between the phone and the desktop layout; charts resize themselves.
    if ((drawnWidth < 700) !== (window.innerWidth < 700)) draw();
    drawnWidth = window.innerWidth;
  }, 200);
});
window.addEventListener('hashchange', () => { readView(); draw(); });
