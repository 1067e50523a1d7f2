// Predictions of `longspan simulate`: the rate per GPU over the number of GPUs, each strategy with the band of its links, and
// measured cases of the same problem as points on top.

const predictedUnit = unitOf(Math.max(0, ...data.simulated.map((s) => s.rate || 0)), rateUnits);
const placementOf = (extra) => extra.placement || '';
const sameProblem = (a, b) => ['kernel', 'mask', 'direction', 'heads', 'head_dim', 'dtype'].every((key) => a[key] === b[key]) &&
  (a.lengths || '') === (b.lengths || '');

// Fills between the ends of each line, dataset.band, one [lo, hi] per point.
const bands = {
  id: 'bands',
  beforeDatasetsDraw(chart) {
    const {ctx, chartArea: area, scales: {y: scale}} = chart;
    ctx.save();
    ctx.beginPath();
    ctx.rect(area.left, area.top, area.width, area.height);
    ctx.clip();
    ctx.globalAlpha = 0.18;
    chart.data.datasets.forEach((dataset, d) => {
      if (!dataset.band) return;
      const points = chart.getDatasetMeta(d).data.map((point, i) => ({x: point.x, ends: dataset.band[i]})).filter((p) => p.ends);
      ctx.fillStyle = dataset.borderColor;
      ctx.beginPath();
      points.forEach((p) => ctx.lineTo(p.x, scale.getPixelForValue(p.ends[0])));
      points.reverse().forEach((p) => ctx.lineTo(p.x, scale.getPixelForValue(p.ends[1])));
      ctx.closePath();
      ctx.fill();
    });
    ctx.restore();
  },
};

// One line for each strategy and placement of the predictions in `here`.
function predictedLines(here, gpus) {
  const nameOf = (s) => [s.extra.strategy, placementOf(s.extra)].filter(Boolean).join(', ');
  const order = (name) => strategyOrder.indexOf(name.split(',')[0]);
  return unique(here.map(nameOf)).sort((a, b) => order(a) - order(b)).map((name) => {
    const best = gpus.map((n) => here.filter((s) => nameOf(s) === name && s.ranks === n).reduce((a, b) => !a || b.rate > a.rate ? b : a, null));
    const colour = strategyColour(name.split(',')[0]);
    return {type: 'line', label: name, data: best.map((s) => s ? s.rate / predictedUnit[1] : null),
      band: best.map((s) => s && s.ends ? s.ends.map((rate) => rate / predictedUnit[1]) : null),
      borderColor: colour, backgroundColor: colour, borderDash: name.includes('context-first') ? [6, 3] : [], borderWidth: 2,
      pointRadius: 2, spanGaps: true, tension: 0};
  });
}

// What was measured of the same problem, with as many tokens per rank: the best case of each strategy and of one device.
function measuredPoints(problem, held, gpus) {
  const matching = cases.filter((c) => c.status === 'ok' && known(c.rate) && sameProblem(c, problem) && c.seqlen === held * rankCount(c));
  return unique(matching.map((c) => c.extra.strategy || '')).map((strategy) => {
    const best = gpus.map((n) => matching.filter((c) => (c.extra.strategy || '') === strategy && rankCount(c) === n)
      .reduce((a, b) => !a || b.rate > a.rate ? b : a, null));
    return {type: 'line', showLine: false, label: `${strategy || 'one device'}, measured`, data: best.map((c) => c ? rankRate(c) / predictedUnit[1] : null),
      pointStyle: 'rectRot', pointRadius: 6, pointHoverRadius: 8, pointBorderWidth: 1.5, pointBorderColor: cssColour('--text'),
      backgroundColor: strategy ? strategyColour(strategy) : cssColour('--muted')};
  });
}
// Both passes of each strategy side by side, the fastest first on each number of ranks.
function drawPredictedTable(shown) {
  const nameOf = (s) => [s.extra.strategy, s.extra.ulysses ? `ulysses ${s.extra.ulysses}` : '', placementOf(s.extra)].filter(Boolean).join(', ');
  const rows = new Map();
  for (const s of shown) {
    const key = [s.ranks, nameOf(s), s.kernel, s.heads, s.head_dim, s.dtype].join('\n');
    const row = rows.get(key) || {name: nameOf(s), ranks: s.ranks, passes: {}};
    row.passes[s.direction] = s;
    rows.set(key, row);
  }
  const time = (row) => sum(Object.values(row.passes).map((s) => s.time)), most = (row) => Math.max(0, ...Object.values(row.passes).map((s) => s.held || 0));
  const bandOf = (s) => s && s.ends ? `${formatTime(s.time * s.rate / s.ends[1])} to ${formatTime(s.time * s.rate / s.ends[0])}` : '';
  const best = new Map();
  for (const row of rows.values()) best.set(row.ranks, Math.min(time(row), best.get(row.ranks) || Infinity));
  const columns = [
    ['Ranks', (row) => String(row.ranks)], ['Strategy', (row) => row.name],
    ['Forward', (row) => formatTime((row.passes.forward || {}).time)], ['Band', (row) => bandOf(row.passes.forward)],
    ['Backward', (row) => formatTime((row.passes.backward || {}).time)], ['Band', (row) => bandOf(row.passes.backward)],
    ['Over the fastest', (row) => (time(row) / best.get(row.ranks)).toFixed(2)],
    ['Buffers', (row) => most(row) ? formatBytes(most(row)) : ''],
  ];
  const sorted = [...rows.values()].sort((a, b) => a.ranks - b.ranks || time(a) - time(b));
  byId('predictions-table').replaceChildren(el('table', {}, el('thead', {}, el('tr', {}, columns.map(([name], i) => el('th', {class: i === 1 ? '' : 'number'}, name)))),
    el('tbody', {}, sorted.map((row) => el('tr', {class: 'predicted'}, columns.map(([, of], i) => el('td', {class: i === 1 ? '' : 'number'}, of(row))))))));
}

const rankCount = (c) => c.parallel ? c.parallel.ranks : 1;

function drawPredictions(view) {
  const all = data.simulated;
  byId('predictions').hidden = all.length === 0;
  if (!all.length) return;
  const maskOf = (s) => s.lengths ? `${s.mask} \u00b7 ${s.lengths}` : s.mask, heldOf = (s) => s.seqlen / s.ranks;
  const masks = unique(all.map(maskOf)), mask = fillSelect(byId('pick-predicted'), masks.map((m) => [m, m]), view.predicted || masks[0]);
  const of = all.filter((s) => maskOf(s) === mask), helds = unique(of.map(heldOf)).sort((a, b) => a - b);
  const held = Number(fillSelect(byId('pick-held'), helds.map((n) => [n, formatLength(n)]), view.held || helds[0]));
  const shown = of.filter((s) => heldOf(s) === held), narrow = window.innerWidth < 700, box = byId('predictions-body');
  byId('predictions-note').textContent = `Simulated, not measured, on ${unique(shown.map((s) => s.machine)).join('; ')}. ` +
    'Lines: the rate per GPU, with as many tokens for each GPU. Bands: with all links a quarter slower and faster. ' +
    'Diamonds: measured on the devices of these results. Higher is better.';
  const text = (v) => `${digits(v)} ${predictedUnit[0]}`;
  const kinds = unique(shown.map((s) => [s.direction, s.kernel, s.heads, s.head_dim, s.dtype].join('\n')));
  box.replaceChildren();
  const drawn = new Map();  // the legend's keys
  kinds.forEach((kind, k) => {
    const here = shown.filter((s) => [s.direction, s.kernel, s.heads, s.head_dim, s.dtype].join('\n') === kind), first = here[0];
    const few = cases.filter((c) => c.status === 'ok' && sameProblem(c, first) && c.seqlen === held * rankCount(c)).map(rankCount);
    const gpus = unique([...here.map((s) => s.ranks), ...few]).sort((a, b) => a - b);
    const lines = predictedLines(here, gpus), points = measuredPoints(first, held, gpus);
    lines.forEach((line) => drawn.set(line.label, line));
    const top = Math.max(...[...lines, ...points].flatMap((d) => d.data).filter(known));
    const options = chartOptions({title: `${predictedUnit[0]} per GPU`, text}, false, narrow, top);
    options.scales.y.beginAtZero = false;
    options.plugins.tooltip.callbacks.label = ({dataset, dataIndex, raw}) => {
      const ends = dataset.band && dataset.band[dataIndex];
      return ` ${dataset.label}: ${text(raw)}` + (ends ? `, ${text(ends[0])} to ${text(ends[1])}` : '');
    };
    drawPanel(box, `predictions-${k}`, [first.direction, first.kernel, first.heads, 'd' + first.head_dim, first.dtype].join(' \u00b7 '), narrow ? 280 : 380,
      {type: 'line', data: {labels: gpus.map(String), datasets: [...points, ...lines]}, options}, [bands]);
  });
  drawPredictedTable(shown);
  byId('predictions-legend').replaceChildren(...[...drawn.values()].map((line) => el('span', {class: 'key'},
    svg('svg', {width: 26, height: 10, 'aria-hidden': 'true'}, svg('line', {x1: 1, x2: 25, y1: 5, y2: 5, stroke: line.borderColor,
      'stroke-width': 2.5, 'stroke-dasharray': line.borderDash.join(' ')})), line.label)));
}
