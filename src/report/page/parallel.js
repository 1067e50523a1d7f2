// Cases spread over ranks: the breakdown of their time, and a picture of the plan.

const timeParts = [
  {key: 'compute_s', label: 'compute', colour: 0}, {key: 'exposed_s', label: 'waiting for data', colour: 1},
  {key: 'reorder_s', label: 'reorder', colour: 4}, {key: 'merge_s', label: 'merge', colour: 3},
];
const partColour = (part) => palette[part.colour][darkScheme.matches ? 1 : 0];
const sum = (list) => list.reduce((a, b) => a + b, 0);

function partShares(p) {
  const all = sum(p.rank_time_s || []);
  return timeParts.map((part) => all > 0 && p[part.key] ? sum(p[part.key]) / all : 0);
}

function splitBar(p) {
  const width = 160, height = 14, picture = svg('svg', {class: 'split', width, height, role: 'img'});
  let at = 0;
  partShares(p).forEach((share, i) => {
    picture.append(svg('rect', {x: (at * width).toFixed(1), y: 0, width: (share * width).toFixed(1), height, fill: partColour(timeParts[i])}));
    at += share;
  });
  picture.append(svg('title', {}, timeParts.map((part, i) => `${part.label} ${formatShare(partShares(p)[i])}`).join(', ')));
  return picture;
}

// A case of the same kernel on one device, from the same file and preferably the same setup: on the same
// work, or on a sequence with the tokens of one rank.
function singleOf(c, seqlen = c.seqlen) {
  const same = (key) => (other) => other[key] === c[key];
  const keys = ['sourceLabel', 'kernel', 'mask', 'lengths', 'heads', 'head_dim', 'dtype', 'direction', 'deterministic'].map(same);
  const singles = cases.filter((other) => other.status === 'ok' && !other.parallel && other.seqlen === seqlen &&
    keys.every((equal) => equal(other)) && scoreKeys.every((key) => other.extra[key] === c.extra[key]));
  return singles.find(same('setup')) || singles[0];
}
const shareOf = (c, one) => one ? formatShare(c.rate / c.parallel.ranks / one.rate) : '';

const planName = (c) => [c.extra.strategy, c.mask, formatLength(c.seqlen), c.direction, c.deterministic ? 'deterministic' : null, plural(c.parallel.ranks, 'rank'),
  ...extraKeys.filter((key) => !['strategy', 'ranks'].includes(key) && known(c.extra[key])).map((key) => `${key} ${c.extra[key]}`),
  manySetups ? c.setupLabel : null].filter(Boolean).join(' · ');

function drawParallel(shown, view) {
  const spread = okOf(shown).filter((c) => c.parallel);
  if (!spread.length) return setSection('parallel');  // hides it
  byId('parallel-legend').replaceChildren(...timeParts.map((part) =>
    el('span', {class: 'key'}, el('span', {class: 'dot', style: {'--c': partColour(part)}}), part.label)));
  const difference = (p) => Math.max(0, ...Object.values(p.difference || {}));
  const options = varying(spread).filter((axis) => extraKeys.includes(axis.name) && !['strategy', 'ranks', 'transport'].includes(axis.name));
  const columns = [
    ['Strategy', (c) => [c.extra.strategy || '', contextOf(c, options)].filter(Boolean).join(' · ')], ['Mask', (c) => maskName(c.mask)], ['Length', (c) => formatLength(c.seqlen), true],
    ['Pass', (c) => c.direction], ['Ranks', (c) => String(c.parallel.ranks), true],
    [`${rankUnit[0]} per rank`, (c) => formatRankRate(rankRate(c)), true],
    ['Share of one device', (c) => shareOf(c, singleOf(c)), true],
    ['Share of one device, same tokens per rank', (c) => shareOf(c, singleOf(c, c.seqlen / c.parallel.ranks)), true],
    ['Time', (c) => formatTime(c.time), true], ['Time by phase', (c) => splitBar(c.parallel)],
    ['Load', (c) => known(c.parallel.imbalance) ? c.parallel.imbalance.toFixed(2) : '', true],
    ['Spread', (c) => formatShare(c.parallel.spread), true],
    ['Sent', (c) => c.parallel.sent_bytes ? formatBytes(Math.max(...c.parallel.sent_bytes)) : '', true],
    ['Difference', (c) => c.parallel.difference ? difference(c.parallel).toExponential(1) : '', true],
  ];
  drawStrategies(spread, view);
  const rows = [...spread].sort((a, b) => a.mask.localeCompare(b.mask) || b.direction.localeCompare(a.direction) ||
    a.parallel.ranks - b.parallel.ranks || a.seqlen - b.seqlen || b.rate - a.rate);
  setSection('parallel', el('table', {id: 'parallel-table'},
    el('thead', {}, el('tr', {}, columns.map(([label, , number]) => el('th', {scope: 'col', class: number ? 'number' : ''}, label)))),
    el('tbody', {}, rows.map((c) => el('tr', {'data-case': c.id}, columns.map(([, of, number]) => el('td', {class: number ? 'number' : ''}, of(c))))))));

  const planned = rows.filter((c) => (c.parallel.plan || []).length);
  byId('pick-plan').parentElement.hidden = planned.length === 0;
  if (!planned.length) return byId('plan').replaceChildren();
  const chosen = fillSelect(byId('pick-plan'), planned.map((c) => [c.id, planName(c)]),
    planned.some((c) => c.id === view.plan) ? view.plan : planned[0].id);
  drawPlan(planned.find((c) => c.id === chosen));
}

const rankColour = (rank) => palette[rank % palette.length][darkScheme.matches ? 1 : 0];

// Numbers as ranges: "0–6, 9".
function rankList(numbers) {
  const sorted = unique(numbers).sort((a, b) => a - b), parts = [];
  for (let i = 0; i < sorted.length;) {
    let j = i;
    while (sorted[j + 1] === sorted[j] + 1) ++j;
    parts.push(i === j ? String(sorted[i]) : `${sorted[i]}–${sorted[j]}`);
    i = j + 1;
  }
  return parts.join(', ');
}

// Ranks run downwards, rounds to the right. A bar is a rank's attention in a round; its height is the number
// of pairs, relative to the largest. The small squares are the ranks whose data arrives for it. On the left
// are the tokens that the rank owns, by their position in the sequence.
function drawPlan(c) {
  const p = c.parallel, plan = p.plan, ranks = p.ranks, narrow = window.innerWidth < 700;
  const row = ranks > 16 ? 22 : 34, left = 30, strip = narrow ? 60 : 150, top = 26, gap = 8;
  const cell = Math.max(18, Math.min(110, Math.floor(((narrow ? 300 : 900) - strip) / plan.length)));
  const most = Math.max(1, ...plan.flatMap((round) => round.area || []));
  const width = left + strip + gap + plan.length * cell + 2, height = top + ranks * row + 4;
  const picture = svg('svg', {id: 'plan-picture', width, height, viewBox: `0 0 ${width} ${height}`, role: 'img'});
  picture.append(svg('title', {}, `Plan of ${planName(c)}`));
  const text = (x, y, value, anchor) => picture.append(svg('text', {x, y, 'text-anchor': anchor || 'start', class: 'plan-text'}, value));
  text(left, top - 10, 'owns');
  for (let i = 0; i < plan.length; ++i) {
    if (cell >= 34 || i % Math.ceil(34 / cell) === 0) text(left + strip + gap + i * cell + cell / 2, top - 10, cell >= 60 ? `round ${i}` : String(i), 'middle');
  }
  for (let rank = 0; rank < ranks; ++rank) {
    const y = top + rank * row;
    text(left - 8, y + row / 2 + 4, String(rank), 'end');
    picture.append(svg('rect', {x: left, y: y + 3, width: strip, height: row - 6, class: 'plan-strip'}));
    for (const [begin, end] of (p.owned || [])[rank] || []) {
      const x = left + strip * begin / c.seqlen;
      const owned = svg('rect', {x: x.toFixed(2), y: y + 3, width: Math.max(0.7, strip * (end - begin) / c.seqlen).toFixed(2), height: row - 6,
        fill: rankColour(rank), class: 'plan-owned'});
      owned.append(svg('title', {}, `rank ${rank} owns tokens ${begin} to ${end - 1}`));
      picture.append(owned);
    }
    plan.forEach((round, i) => {
      const x = left + strip + gap + i * cell, area = (round.area || [])[rank] || 0;
      const arriving = (round.moves || []).filter(([, , to]) => to === rank), leaving = (round.moves || []).filter(([, from]) => from === rank);
      const tall = (row - 6) * area / most;
      const box = svg('g', {class: 'plan-cell', 'data-rank': rank, 'data-round': i});
      box.append(svg('rect', {x: x + 1, y: y + 3, width: cell - 2, height: row - 6, class: 'plan-strip'}),
        svg('rect', {x: x + 1, y: (y + 3 + (row - 6) - tall).toFixed(1), width: cell - 2, height: tall.toFixed(1), fill: rankColour(rank), class: 'plan-area'}));
      const sources = unique(arriving.filter(([what]) => what !== 'dkv' && what !== 'dq' && what !== 'o').map(([, from]) => from)).sort((a, b) => a - b);
      const size = Math.max(3, Math.min(9, Math.floor((cell - 6) / Math.max(1, sources.length)) - 1));
      sources.forEach((source, k) => box.append(svg('rect', {x: x + 4 + k * (size + 1), y: y + 6, width: size, height: size,
        fill: rankColour(source), class: 'plan-source'})));
      const byOperand = (list, end) => unique(list.map(([what]) => what)).map((what) => {
        const those = list.filter(([w]) => w === what);
        return `${what} ${end === 1 ? 'from' : 'to'} ${rankList(those.map((m) => m[end]))} (${formatBytes(sum(those.map((m) => m[3])))})`;
      }).join(', ');
      box.append(svg('title', {}, [`rank ${rank}, round ${i}: ${formatCount(area)} pairs`,
        arriving.length ? `receives ${byOperand(arriving, 1)}` : '', leaving.length ? `sends ${byOperand(leaving, 2)}` : ''].filter(Boolean).join('\n')));
      picture.append(box);
    });
  }
  const loads = p.area || [], mean = sum(loads) / Math.max(1, loads.length);
  byId('plan').replaceChildren(el('h3', {}, 'Plan by rank and round'),
    el('p', {class: 'note'}, 'Left: the tokens that each rank owns, along the sequence. Bars: the visible pairs of a rank in a round. Squares: the ranks whose data arrives for it. ' +
      (loads.length ? `Visible pairs by rank, over the mean: ${loads.slice(0, 16).map((a) => (mean ? a / mean : 0).toFixed(2)).join(', ')}${loads.length > 16 ? ', …' : ''}.` : '')),
    el('div', {class: 'scroll'}, picture));
}
