// Workloads: the distribution of a step's time, by kernel and strategy. The program has summed up the steps.

const workloadColumns = [
  ['kernel and strategy', (w) => w.contender],
  ['p50', (w) => formatTime((w.attention || {}).p50)], ['p95', (w) => formatTime((w.attention || {}).p95)],
  ['p99', (w) => formatTime((w.attention || {}).p99)],
  ['planning', (w) => formatTime((w.planning || {}).p50)], ['with planning', (w) => formatTime((w.with_planning || {}).p50)],
  ['tokens', (w) => formatRatio(w.tokens)], ['pairs', (w) => formatRatio(w.pairs)], ['time', (w) => formatRatio(w.time)],
  ['largest error', (w) => formatShare(w.error)], ['steps', (w) => `${w.measured} of ${w.steps}`],
];
const formatRatio = (x) => known(x) ? x.toFixed(2) : '';

function workloadTable(list) {
  const rows = list.flatMap((w) => [
    el('tr', {class: 'step-times'}, workloadColumns.map(([, text], i) => el('td', {class: i ? 'number' : undefined}, text(w)))),
    w.reason ? el('tr', {}, el('td', {colspan: workloadColumns.length, class: 'muted'}, w.reason)) : null]).filter(Boolean);
  return el('div', {class: 'scroll'}, el('table', {},
    el('thead', {}, el('tr', {}, workloadColumns.map(([name], i) => el('th', {class: i ? 'number' : undefined}, name)))), el('tbody', {}, rows)));
}

function drawWorkloads() {
  const titleOf = (w) => [w.workload, w.hash, plural(w.steps, 'step'), plural(w.layers, 'layer'), manySetups ? w.setup : ''].filter(Boolean).join(' · ');
  setSection('workloads', ...unique(data.workloads.map(titleOf)).flatMap((title) =>
    [el('h3', {}, title), workloadTable(data.workloads.filter((w) => titleOf(w) === title))]));
}
