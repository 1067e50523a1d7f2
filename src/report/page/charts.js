// The charts: the selected metric over length and by mask, and memory over length. One panel per direction.

const metrics = [
  {name: 'throughput', label: 'Throughput', title: `Throughput, ${rateUnit[0]}`, of: (c) => c.rate && c.rate / rateUnit[1],
    ends: (c) => c.interval && c.rate && [c.rate * c.time / c.interval[1] / rateUnit[1], c.rate * c.time / c.interval[0] / rateUnit[1]],
    text: (v) => `${digits(v)} ${rateUnit[0]}`,
    note: 'FLOPs of visible pairs per second; higher is better. Whiskers are 95 % intervals of the median.'},
  {name: 'share', label: 'Share of ceiling', title: 'Share of the ceiling, %', of: (c) => known(c.share) ? 100 * c.share : undefined,
    ends: (c) => c.interval && known(c.share) && [100 * c.share * c.time / c.interval[1], 100 * c.share * c.time / c.interval[0]],
    text: (v) => `${digits(v)} %`,
    note: 'Throughput over that of a large matrix product measured in the same run on the same device; higher is better.'},
  {name: 'time', label: 'Time', title: 'Time', log: true, of: (c) => c.time * 1e3,
    ends: (c) => c.interval && c.interval.map((t) => t * 1e3), text: (v) => formatTime(v / 1e3),
    note: 'Median time of one call, on a logarithmic scale; lower is better.'},
  {name: 'plan', label: 'Planning', title: 'Planning time', log: true, of: (c) => c.plan ? c.plan * 1e3 : undefined,
    text: (v) => formatTime(v / 1e3), note: 'Planning time once per mask, not part of the time of a call; logarithmic scale, lower is better.'},
  {name: 'peak', label: 'Memory', title: 'Peak memory', log: true, bytes: true, of: (c) => c.peak ? c.peak / 2 ** 20 : undefined,
    text: (v) => formatBytes(v * 2 ** 20),
    note: 'Peak memory beyond inputs and outputs, on a logarithmic scale; lower is better.'},
].filter((metric) => cases.some((c) => c.status === 'ok' && known(metric.of(c))));

const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Draws dataset.ends, one [lo, hi] per point, as whiskers on the value axis.
const whiskers = {
  id: 'whiskers',
  afterDatasetsDraw(chart) {
    const sideways = chart.options.indexAxis === 'y';
    const scale = chart.scales[sideways ? 'x' : 'y'];
    const area = chart.chartArea, ctx = chart.ctx;
    ctx.save();
    ctx.beginPath();
    ctx.rect(area.left, area.top, area.width, area.height);
    ctx.clip();
    ctx.lineWidth = 1;
    chart.data.datasets.forEach((dataset, d) => {
      if (!dataset.ends || !chart.isDatasetVisible(d)) return;
      const bars = dataset.type === 'bar';
      ctx.strokeStyle = bars ? cssColour('--text') : dataset.borderColor;
      chart.getDatasetMeta(d).data.forEach((point, i) => {
        const ends = dataset.ends[i];
        if (!ends || (bars && point.height < 4 && sideways) || (bars && point.width < 4 && !sideways)) return;
        const [from, to] = ends.map((v) => scale.getPixelForValue(v));
        if (Math.abs(from - to) < 2) return;
        ctx.beginPath();
        if (sideways) {
          ctx.moveTo(from, point.y); ctx.lineTo(to, point.y);
          for (const x of [from, to]) { ctx.moveTo(x, point.y - 2.5); ctx.lineTo(x, point.y + 2.5); }
        } else {
          ctx.moveTo(point.x, from); ctx.lineTo(point.x, to);
          for (const y of [from, to]) { ctx.moveTo(point.x - 3, y); ctx.lineTo(point.x + 3, y); }
        }
        ctx.stroke();
      });
    });
    ctx.restore();
  },
};

// The series of a list of cases: one per kernel and value of the other varying axes.
function seriesOf(list, except) {
  const axes = varying(list, 'lengths').filter((axis) => axis.name !== except);
  const found = new Map();
  const contexts = unique(list.map((c) => contextOf(c, axes)));
  for (const c of list) {
    const context = contextOf(c, axes), key = c.kernel + '\n' + context;
    if (!found.has(key)) {
      found.set(key, {kernel: c.kernel, label: context ? `${c.kernel} · ${context}` : c.kernel,
        strategy: c.extra.strategy, variant: contexts.indexOf(context), cases: []});
    }
    found.get(key).cases.push(c);
  }
  return [...found.values()].sort((a, b) => kernelRank(a) - kernelRank(b) || a.variant - b.variant);
}

// The colour of the kernel or, on several ranks, of the strategy.
const seriesColour = (series) => series.strategy ? strategyColour(series.strategy) : kernelColour(series.kernel);
const dashes = [[], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4]];

function dataset(series, type, positions, positionOf, valueOf, endsOf) {
  const colour = seriesColour(series);
  // If several cases share a point (no filter separates them), the best one is drawn.
  const at = new Map();
  for (const c of series.cases) {
    const value = valueOf(c), position = positionOf(c);
    if (known(value) && (!at.has(position) || c.time < at.get(position).time)) at.set(position, c);
  }
  const ordered = positions.map((p) => at.get(p));
  return {
    type, label: series.label, data: ordered.map((c) => c ? valueOf(c) : null),
    ends: endsOf ? ordered.map((c) => c ? endsOf(c) || null : null) : undefined,
    borderColor: colour, backgroundColor: type === 'bar' && series.variant && !series.strategy ? colour + '99' : colour,
    pointStyle: kernelShape(series.kernel, series.variant), borderDash: dashes[series.variant % dashes.length],
    borderWidth: type === 'bar' ? 0 : 2, pointRadius: 4, pointHoverRadius: 6, spanGaps: true, tension: 0,
    categoryPercentage: 0.82, barPercentage: 0.94, skipNull: true,
  };
}

// A few round ticks on a logarithmic scale; powers of two for memory.
function logTicks(scale, powersOfTwo) {
  const ticks = [], low = scale.min, high = scale.max;
  if (!(low > 0) || !(high > low)) return;
  if (powersOfTwo) {
    const first = Math.ceil(Math.log2(low) - 1e-9), last = Math.floor(Math.log2(high) + 1e-9);
    const step = Math.max(1, Math.ceil((last - first) / 7));
    for (let e = first; e <= last; e += step) ticks.push({value: 2 ** e});
  } else {
    const decades = Math.log10(high / low), digits = decades > 5 ? [1] : decades > 2.5 ? [1, 3] : [1, 2, 5];
    for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); ++e) {
      digits.map((d) => d * 10 ** e).filter((v) => v >= low * 0.999 && v <= high * 1.001).forEach((value) => ticks.push({value}));
    }
  }
  if (ticks.length > 1) scale.ticks = ticks;
}
const briefly = (text) => text.replace(/(\.\d*?)0+(?= |$)/, '$1').replace(/\.(?= |$)/, '');

// top: the end of the value axis, equal for panels side by side so that they can be compared.
function chartOptions(metric, sideways, narrow, top) {
  const {title, log, text} = metric;
  const grid = {color: cssColour('--line'), drawBorder: false}, ticks = {color: cssColour('--muted')};
  const values = {
    type: log ? 'logarithmic' : 'linear', beginAtZero: !log, grid,
    suggestedMax: log ? undefined : top, ticks: {...ticks, maxTicksLimit: 8, ...(log ? {callback: (v) => briefly(text(v))} : {})},
    ...(log ? {afterBuildTicks: (scale) => logTicks(scale, metric.bytes)} : {}),
    title: {display: true, text: title, color: cssColour('--muted')},
  };
  const names = {grid: {display: false}, ticks: {...ticks, autoSkip: false, maxRotation: 50,
    font: {size: narrow ? 10 : 12}, callback(v) {
      // A pattern's options are shown below its name, since neighbouring masks differ by them.
      const label = String(this.getLabelForValue(v)), space = label.indexOf(' ');
      return (space < 0 ? [label] : [label.slice(0, space), label.slice(space + 1)]).map((l) => shortLabel(l, narrow ? 20 : 30));
    }}};
  return {
    animation: false, responsive: true, maintainAspectRatio: false, indexAxis: sideways ? 'y' : 'x',
    interaction: {mode: 'index', intersect: false, axis: sideways ? 'y' : 'x'},
    scales: sideways ? {x: values, y: names} : {x: names, y: values},
    plugins: {
      legend: {display: false},
      tooltip: {
        usePointStyle: true, itemSort: (a, b) => (log ? 1 : -1) * (a.raw - b.raw),
        callbacks: {label: (item) => {
          const ends = (item.dataset.ends || [])[item.dataIndex];
          return ` ${item.dataset.label}: ${text(item.raw)}` + (ends ? ` [${text(ends[0])}, ${text(ends[1])}]` : '');
        }},
      },
    },
  };
}

const shortLabel = (label, most) => label.length > most ? label.slice(0, most - 1) + '…' : label;

const charts = new Map();  // by the id of the canvas
function drawPanel(box, id, heading, height, config, plugins = []) {
  const canvas = el('canvas', {id, role: 'img', 'aria-label': heading});
  box.append(el('figure', {class: 'panel'}, el('figcaption', {}, heading),
    el('div', {class: 'canvas', style: {height: height + 'px'}}, canvas)));
  charts.set(id, new Chart(canvas, {...config, plugins: [whiskers, ...plugins]}));
}

function fillSelect(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => el('option', {value}, text)));
  const has = options.some(([value]) => String(value) === String(chosen));
  if (options.length) select.value = has ? chosen : options[options.length - 1][0];
  return select.value;
}

const maskLabel = (c, masksWithSeveral) =>
  masksWithSeveral.has(c.mask) && c.lengths ? `${c.mask} · ${c.lengths}` : c.mask;
function severalLengths(list) {
  const sources = new Map();
  list.forEach((c) => c.lengths && sources.set(c.mask, (sources.get(c.mask) || new Set()).add(c.lengths)));
  return new Set([...sources].filter(([, set]) => set.size > 1).map(([mask]) => mask));
}

function drawLegend(list) {
  byId('legend').replaceChildren(...seriesOf(list).map((series) => el('span', {class: 'key'},
    svg('svg', {width: 26, height: 10, 'aria-hidden': 'true'},
      svg('line', {x1: 1, x2: 25, y1: 5, y2: 5, stroke: seriesColour(series), 'stroke-width': 2.5,
        'stroke-dasharray': dashes[series.variant % dashes.length].join(' ')})), series.label)));
}

function drawCharts(shown, view) {
  charts.forEach((chart) => chart.destroy());
  charts.clear();
  const ok = shown.filter((c) => c.status === 'ok');
  const metric = metrics.find((m) => m.name === view.metric) || metrics[0];
  const several = severalLengths(ok);
  const label = (c) => maskLabel(c, several);
  const directions = unique(ok.map((c) => c.direction));
  const narrow = window.innerWidth < 700;
  byId('charts').hidden = byId('memory').hidden = ok.length === 0 || !metric;
  if (ok.length === 0 || !metric) return;

  byId('metric').replaceChildren(...metrics.map((m) => el('button', {type: 'button', 'data-metric': m.name,
    'aria-pressed': String(m === metric), onclick: () => view.change({metric: m.name})}, m.label)));
  byId('charts-title').textContent = metric.label;
  byId('metric-note').textContent = metric.note;
  drawLegend(ok);

  const lengthsOf = (list) => unique(list.map((c) => c.seqlen)).sort((a, b) => a - b);
  const masks = unique(ok.map(label));
  const topOf = (list) => Math.max(0, ...list.map(metric.of).filter(known));
  const overLength = byId('over-length-charts'), byMask = byId('by-mask-charts');
  overLength.replaceChildren();
  byMask.replaceChildren();

  const lengths = lengthsOf(ok);
  // The longest length at which nearly all cases ran.
  const runs = (n) => ok.filter((c) => c.seqlen === n).length, most = Math.max(...lengths.map(runs));
  const usual = lengths.filter((n) => runs(n) >= 0.75 * most).pop();
  const length = Number(fillSelect(byId('pick-length'), lengths.map((n) => [n, formatLength(n)]),
    lengths.includes(Number(view.chartLength)) ? view.chartLength : usual));
  drawOver(ok, directions, metric, label, view, length, narrow, topOf);

  for (const direction of directions) {
    const list = ok.filter((c) => c.direction === direction && c.seqlen === length);
    if (list.length === 0) continue;
    const here = masks.filter((m) => list.some((c) => label(c) === m));
    const series = seriesOf(ok).map((s) => ({...s, cases: s.cases.filter((c) => list.includes(c))})).filter((s) => s.cases.length);
    const sideways = narrow || series.length <= 3;
    const bars = Math.max(series.length, 2);
    const height = sideways ? 60 + here.length * (8 + bars * (series.length > 6 ? 7 : 11)) : 380;
    drawPanel(byMask, `by-mask-${direction}`, `${formatLength(length)}, ${direction}`, height, {
      type: 'bar',
      data: {labels: here, datasets: series.map((s) => dataset(s, 'bar', here, label, metric.of, metric.ends))},
      options: chartOptions(metric, sideways, narrow, topOf(ok.filter((c) => c.seqlen === length))),
    });
  }
  byMask.classList.toggle('wide', !narrow && seriesOf(ok).length > 3);
  drawMemory(ok, directions, narrow);
}

const memoryMetric = {title: 'Peak memory', log: true, bytes: true, text: (v) => formatBytes(v * 2 ** 20)};
// The possible x axes of line charts: length, and any other numeric option that varies.
const sweeps = [
  {name: 'seqlen', title: 'length', of: (c) => c.seqlen, text: formatLength},
  ...data.sweptOptions.map((key) => ({name: key, title: key.replaceAll('_', ' '), option: true, text: String,
    of: (c) => known(c.options[key]) ? Number(c.options[key]) : undefined})),
  ...extraKeys.map((key) => ({name: key, title: key, text: String,
    of: (c) => known(c.extra[key]) && c.extra[key] !== '' && isFinite(c.extra[key]) ? Number(c.extra[key]) : undefined})),
];

function drawOver(ok, directions, metric, label, view, length, narrow, topOf) {
  const box = byId('over-length-charts');
  const swept = (sweep, list) => unique(list.map(sweep.of).filter(known)).sort((a, b) => a - b);
  // A mask's name contains its options. All masks of a sweep have the same name without the swept option.
  const labelFor = (sweep) => (c) => sweep.option ? label(c).replace(` ${sweep.name} ${c.options[sweep.name]}`, '') : label(c);
  const masksOf = (sweep, list) => unique(list.map(labelFor(sweep)))
    .filter((mask) => swept(sweep, list.filter((c) => labelFor(sweep)(c) === mask)).length > 1);
  const within = (sweep) => sweep.name === 'seqlen' ? ok : ok.filter((c) => c.seqlen === length);
  const possible = sweeps.filter((sweep) => masksOf(sweep, within(sweep)).length > 0);
  byId('over-length').hidden = possible.length === 0;
  if (possible.length === 0) return;
  const chosen = fillSelect(byId('pick-over'), possible.map((s) => [s.name, s.title]),
    possible.some((s) => s.name === view.over) ? view.over : possible[0].name);
  byId('pick-over').parentElement.hidden = possible.length === 1;
  const sweep = possible.find((s) => s.name === chosen), list = within(sweep), name = labelFor(sweep);
  byId('over-title').textContent = 'Over ' + sweep.title;
  const masks = masksOf(sweep, list), first = masks.includes(data.plainestMask) ? data.plainestMask : masks[0];
  const mask = fillSelect(byId('pick-mask'), masks.map((m) => [m, m]), masks.includes(view.chartMask) ? view.chartMask : first);
  const ofMask = list.filter((c) => name(c) === mask);
  for (const direction of directions) {
    const here = ofMask.filter((c) => c.direction === direction), positions = swept(sweep, here);
    if (positions.length === 0) continue;
    const caption = [mask, sweep.name === 'seqlen' ? null : formatLength(length), direction].filter(Boolean).join(', ');
    drawPanel(box, `over-length-${direction}`, caption, narrow ? 260 : 340, {
      type: 'line',
      data: {labels: positions.map(sweep.text), datasets: seriesOf(ok, sweep.name)
        .map((s) => ({...s, cases: s.cases.filter((c) => here.includes(c))})).filter((s) => s.cases.length)
        .map((s) => dataset(s, 'line', positions, sweep.of, metric.of, metric.ends))},
      options: chartOptions(metric, false, narrow, topOf(ofMask)),
    });
  }
}

function drawMemory(ok, directions, narrow) {
  const box = byId('memory-charts');
  box.replaceChildren();
  const withPeak = ok.filter((c) => c.peak > 0);
  const lengths = unique(withPeak.map((c) => c.seqlen)).sort((a, b) => a - b);
  byId('memory').hidden = lengths.length < 2;
  if (lengths.length < 2) return;
  for (const direction of directions) {
    const series = seriesOf(ok).map((s) => {
      const largest = new Map();
      for (const c of s.cases) {
        if (c.direction !== direction || !(c.peak > 0)) continue;
        if (!largest.has(c.seqlen) || c.peak > largest.get(c.seqlen).peak) largest.set(c.seqlen, c);
      }
      return {...s, cases: [...largest.values()]};
    }).filter((s) => s.cases.length);
    if (series.length === 0) continue;
    drawPanel(box, `memory-${direction}`, direction, narrow ? 240 : 300, {
      type: 'line',
      data: {labels: lengths.map(formatLength),
        datasets: series.map((s) => dataset(s, 'line', lengths, (c) => c.seqlen, (c) => c.peak / 2 ** 20))},
      options: chartOptions(memoryMetric, false, narrow),
    });
  }
}
