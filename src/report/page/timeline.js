// The timeline of a simulated pass: what each rank does when, and what its buffers use.

const stretchParts = {compute: timeParts[0], wait: timeParts[1], reorder: timeParts[2], merge: timeParts[3]};
const simulatedName = (s) => [s.extra.strategy, placementOf(s.extra), s.extra.ulysses ? `ulysses ${s.extra.ulysses}` : '', s.mask, s.lengths,
  formatLength(s.seqlen), s.direction, plural(s.ranks, 'rank'), s.machine].filter(Boolean).join(' \u00b7 ');

// One row for each rank; `height` of a row, `draw(rank, y)` adds what is in it.
function rankRows(picture, ranks, {left, width, height, top}, draw) {
  for (let rank = 0; rank < ranks; ++rank) {
    const y = top + rank * height;
    picture.append(svg('rect', {x: left, y: y + 1, width, height: height - 2, class: 'plan-strip'}));
    if (height >= 12 || rank % 4 === 0) picture.append(svg('text', {x: left - 6, y: y + height / 2 + 4, 'text-anchor': 'end', class: 'plan-text'}, String(rank)));
    draw(rank, y);
  }
}

function timelinePicture(s) {
  const narrow = window.innerWidth < 700, left = 34, width = narrow ? 420 : 1000, height = s.ranks > 16 ? 9 : 20, gap = 30, top = 22;
  const {timeline: t, memory: m} = s, end = Math.max(s.time, ...t.end), most = Math.max(1, ...(m ? m.bytes : []));
  const xOf = (time) => left + width * time / end, below = top + s.ranks * height + gap;
  const total = (m ? below + s.ranks * height : top + s.ranks * height) + 6;
  const picture = svg('svg', {id: 'timeline-picture', width: left + width + 4, height: total, viewBox: `0 0 ${left + width + 4} ${total}`, role: 'img'});
  picture.append(svg('title', {}, `Simulated timeline of ${simulatedName(s)}`));
  const text = (x, y, value, anchor) => picture.append(svg('text', {x, y, 'text-anchor': anchor, class: 'plan-text'}, value));
  text(left, top - 8, 'rank by time', 'start');
  text(left + width, top - 8, formatTime(end), 'end');
  const stretches = new Map();  // by rank
  t.rank.forEach((rank, i) => stretches.set(rank, [...(stretches.get(rank) || []), i]));
  rankRows(picture, s.ranks, {left, width, height, top}, (rank, y) => (stretches.get(rank) || []).forEach((i) => {
    const part = stretchParts[t.what[i]];
    if (!part) return;
    const box = svg('rect', {x: xOf(t.begin[i]).toFixed(2), y: y + 1, width: Math.max(0.3, xOf(t.end[i]) - xOf(t.begin[i])).toFixed(2), height: height - 2,
      fill: partColour(part), class: 'timeline-stretch', 'data-what': t.what[i], 'data-rank': rank});
    box.append(svg('title', {}, `rank ${rank}: ${part.label}${t.peer[i] >= 0 ? ` of rank ${t.peer[i]}` : ''}, ${formatTime(t.end[i] - t.begin[i])} from ${formatTime(t.begin[i])} on`));
    picture.append(box);
  }));
  if (!m) return picture;
  text(left, below - 8, 'memory in use', 'start');
  text(left + width, below - 8, `full height: ${formatBytes(most)}`, 'end');
  const rounds = new Map();
  m.rank.forEach((rank, i) => rounds.set(rank, [...(rounds.get(rank) || []), i]));
  rankRows(picture, s.ranks, {left, width, height, top: below}, (rank, y) => (rounds.get(rank) || []).forEach((i, k, all) => {
    const until = k + 1 < all.length ? m.begin[all[k + 1]] : end, tall = (height - 2) * m.bytes[i] / most;
    const box = svg('rect', {x: xOf(m.begin[i]).toFixed(2), y: (y + height - 1 - tall).toFixed(2), width: Math.max(0.3, xOf(until) - xOf(m.begin[i])).toFixed(2),
      height: tall.toFixed(2), fill: rankColour(rank), class: 'timeline-memory', 'data-rank': rank});
    box.append(svg('title', {}, `rank ${rank}, round ${k}: at most ${formatBytes(m.bytes[i])}`));
    picture.append(box);
  }));
  return picture;
}

function drawTimelines(view) {
  const drawn = data.simulated.filter((s) => s.timeline);
  byId('timelines').hidden = drawn.length === 0;
  if (!drawn.length) return;
  const chosen = fillSelect(byId('pick-timeline'), drawn.map((s, i) => [i, simulatedName(s)]), view.timeline || 0);
  byId('timelines-legend').replaceChildren(...Object.values(stretchParts).map((part) =>
    el('span', {class: 'key'}, el('span', {class: 'dot', style: {'--c': partColour(part)}}), part.label)));
  byId('timelines-body').replaceChildren(timelinePicture(drawn[Number(chosen)]));
}
