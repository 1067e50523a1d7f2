// Everything that is not a chart: fastest kernels, kernels, shares, accuracy, masks, cases not measured, all
// cases, runs.

const okOf = (list) => list.filter((c) => c.status === 'ok');
function setSection(id, ...content) {
  const empty = content.length === 0;
  byId(id).hidden = empty;
  if (!empty) byId(id + '-body').replaceChildren(...content);
}

function drawOverview(shown) {
  byId('overview').hidden = cases.length === 0;  // a page of workloads alone
  const ok = okOf(shown);
  const counts = {skipped: 0, failed: 0};
  shown.forEach((c) => { if (c.status in counts) ++counts[c.status]; });
  const tile = (value, label, detail, extra) => el('div', {class: 'tile ' + (extra || '')}, el('p', {class: 'tile-label'}, label),
    el('p', {class: 'tile-value'}, value), el('p', {class: 'tile-detail'}, detail));
  const tiles = [tile(String(ok.length), 'Measured', `${counts.skipped} skipped, ${counts.failed} failed`, counts.failed ? 'bad' : '')];
  const names = (axis) => unique(ok.map(axis));
  const kernels = names((c) => c.kernel), masks = names((c) => c.mask), lengths = names((c) => c.seqlen).sort((a, b) => a - b);
  if (ok.length) {
    tiles.push(tile(`${kernels.length} × ${masks.length}`, 'Kernels × masks', lengths.length > 1
      ? `${formatLength(lengths[0])} to ${formatLength(lengths[lengths.length - 1])} tokens` : `${formatLength(lengths[0])} tokens`));
    const rated = ok.filter((c) => known(c.rate));
    if (rated.length) {
      const best = rated.reduce((a, b) => b.rate > a.rate ? b : a);
      tiles.push(tile(`${formatRate(best.rate)} ${rateUnit[0]}`, 'Highest rate', `${contender(best)}, ${best.mask}, ${formatLength(best.seqlen)}, ${best.direction}`));
    }
    const wins = new Map(), contests = contestsOf(ok);
    let decided = 0;
    for (const contest of contests) {
      if (contest.length < 2) continue;
      ++decided;
      wins.set(contender(contest[0]), (wins.get(contender(contest[0])) || 0) + 1);
    }
    if (decided) {
      const [name, count] = [...wins].reduce((a, b) => b[1] > a[1] ? b : a);
      tiles.push(tile(name, 'Most often fastest', `${count} of ${plural(decided, 'contest')} between ${ok.some((c) => c.extra.strategy) ? 'strategies or kernels' : 'kernels'}`));
    }
    const errors = ok.map(worstError).filter(known);
    if (errors.length) {
      tiles.push(tile(formatShare(Math.max(...errors)), 'Largest error', `of its tolerance, over ${plural(errors.length, 'verified case')}`));
    }
  }
  byId('overview').replaceChildren(...tiles);
}

// Cases that do the same work on the same number of ranks, fastest first.
const contestAxes = (axes) => axes.filter((axis) => !strategyKeys.includes(axis.name));
function contestsOf(ok) {
  const groups = new Map();
  for (const c of ok) {
    const key = [c.mask, c.lengths, c.seqlen, c.direction, contextOf(c, contestAxes(contextAxes))].join('\n');
    groups.set(key, (groups.get(key) || []).concat(c));
  }
  return [...groups.values()].map((list) => list.sort((a, b) => a.time - b.time));
}

function drawFastest(shown) {
  const ok = okOf(shown);
  // Builds and machines of one file share a row. A cell has the fastest case and those measured together with
  // it.
  const axes = apartBySource(ok, contestAxes(varying(ok, 'lengths'))), several = severalLengths(ok);
  const rowOf = (c) => [maskLabel(c, several), shortContextOf(c, axes)].filter(Boolean).join(' · ');
  const lengths = unique(ok.map((c) => c.seqlen)).sort((a, b) => a - b);
  const tables = unique(ok.map((c) => c.direction)).map((direction) => {
    const list = ok.filter((c) => c.direction === direction);
    const cell = new Map();
    for (const contest of contestsOf(list)) {
      const key = rowOf(contest[0]) + '\n' + contest[0].seqlen;
      if (!cell.has(key) || contest[0].time < cell.get(key)[0].time) cell.set(key, contest);
    }
    const row = (name) => el('tr', {}, el('th', {scope: 'row'}, maskName(name)), lengths.map((length) => {
      const contest = cell.get(name + '\n' + length);
      if (!contest) return el('td', {class: 'none'}, '');
      const [first, second] = contest;
      let lead = 'alone';
      if (second) {
        const settled = first.interval && second.interval && first.interval[1] < second.interval[0];
        lead = (settled ? '' : '≈ ') + (second.time / first.time).toFixed(2) + '×';
      }
      return el('td', {class: 'winner', style: {'--c': colourOf(first)}, title: contest.map((c) =>
        `${contender(c)}: ${formatRate(c.rate)} ${rateUnit[0]}, ${formatTime(c.time)}`).join('\n')},
      el('span', {class: 'who'}, contender(first)), el('span', {class: 'how'}, formatRate(first.rate), el('span', {class: 'lead-by'}, lead)));
    }));
    return el('div', {class: 'panel'}, el('h3', {}, direction), el('div', {class: 'scroll'}, el('table', {class: 'heat'},
      el('thead', {}, el('tr', {}, el('th', {scope: 'col'}, rateUnit[0]), lengths.map((n) => el('th', {scope: 'col'}, formatLength(n))))),
      el('tbody', {}, unique(list.map(rowOf)).map(row)))));
  });
  byId('fastest-title').textContent = ok.some((c) => c.extra.strategy) ? 'Fastest strategy' : 'Fastest kernel';
  byId('fastest-body').className = lengths.length <= 4 ? 'charts' : '';
  setSection('fastest', ...tables);
}

function drawKernels(shown) {
  const rows = seriesOf(okOf(shown)).map((series) => {
    const list = series.cases, contests = new Map();
    const shares = list.map((c) => c.share).filter(known), errors = list.map(worstError).filter(known);
    const peaks = list.map((c) => c.peak).filter(known), plans = list.map((c) => c.plan).filter(known);
    return {series, list, shares, errors, peaks, plans, contests};
  });
  if (!rows.length) return setSection('kernels');
  const winners = new Map();
  for (const contest of contestsOf(okOf(shown))) {
    if (contest.length > 1) winners.set(contest[0].index, true);
  }
  const failures = (series, status) => shown.filter((c) => c.status === status && c.kernel === series.kernel).length;
  setSection('kernels', el('table', {}, el('thead', {}, el('tr', {},
    ['Kernel', 'Measured', 'Fastest', 'Best ' + rateUnit[0], 'Share of ceiling', 'Largest error', 'Peak memory', 'Longest planning', 'Skipped', 'Failed']
      .map((h, i) => el('th', {scope: 'col', class: i ? 'number' : ''}, h)))),
  el('tbody', {}, rows.map(({series, list, shares, errors, peaks, plans}) => el('tr', {},
    el('th', {scope: 'row'}, dot(series.kernel), series.label),
    el('td', {class: 'number'}, String(list.length)),
    el('td', {class: 'number'}, String(list.filter((c) => winners.has(c.index)).length)),
    el('td', {class: 'number'}, formatRate(Math.max(...list.map((c) => c.rate || 0)))),
    el('td', {class: 'number'}, shares.length ? [formatShare(median(shares)), el('span', {class: 'muted'},
      ` ${formatShare(Math.min(...shares))} to ${formatShare(Math.max(...shares))}`)] : ''),
    el('td', {class: 'number'}, errors.length ? formatShare(Math.max(...errors)) : ''),
    el('td', {class: 'number'}, peaks.length ? formatBytes(Math.max(...peaks)) : ''),
    el('td', {class: 'number'}, plans.length ? formatTime(Math.max(...plans)) : ''),
    el('td', {class: 'number'}, String(failures(series, 'skipped'))),
    el('td', {class: 'number' + (failures(series, 'failed') ? ' bad-text' : '')}, String(failures(series, 'failed'))))))));
}

function drawShares(shown) {
  const ok = okOf(shown).filter((c) => known(c.share));
  const several = severalLengths(ok), label = (c) => maskLabel(c, several);
  const directions = unique(ok.map((c) => c.direction));
  setSection('share', ...directions.map((direction) => {
    const list = ok.filter((c) => c.direction === direction);
    const masks = unique(list.map(label)), series = seriesOf(list);
    const top = Math.max(1, ...list.map((c) => c.share));
    return el('div', {class: 'panel'}, el('h3', {}, direction), el('div', {class: 'scroll'}, el('table', {class: 'heat shares'},
      el('thead', {}, el('tr', {}, el('th', {scope: 'col'}, 'Mask'), series.map((s) => el('th', {scope: 'col'}, dot(s.kernel), s.label)))),
      el('tbody', {}, masks.map((mask) => el('tr', {}, el('th', {scope: 'row'}, maskName(mask)), series.map((s) => {
        const here = s.cases.filter((c) => label(c) === mask);
        if (!here.length) return el('td', {class: 'none'}, '');
        const best = here.reduce((a, b) => b.share > a.share ? b : a);
        return el('td', {class: 'level', style: {'--level': Math.round(45 * best.share / top) + '%'}},
          el('span', {class: 'who'}, formatShare(best.share)), el('span', {class: 'how'}, 'at ' + formatLength(best.seqlen)));
      })))))));
  }));
  byId('share-body').className = seriesOf(ok).length <= 4 ? 'charts' : '';
}

function drawAccuracy(shown) {
  const checked = okOf(shown).filter((c) => c.accuracy);
  if (!checked.length) return setSection('accuracy');
  const order = ['o', 'lse', 'dq', 'dk', 'dv'];
  const tensors = unique(checked.flatMap((c) => Object.keys(c.accuracy.errors || {})))
    .sort((a, b) => (order.indexOf(a) + 1 || 99) - (order.indexOf(b) + 1 || 99));
  const groups = new Map();
  for (const c of checked) {
    const key = c.kernel + '\n' + c.dtype;
    groups.set(key, (groups.get(key) || []).concat(c));
  }
  setSection('accuracy', el('table', {}, el('thead', {}, el('tr', {}, el('th', {scope: 'col'}, 'Kernel'), el('th', {scope: 'col'}, 'Type'),
    el('th', {scope: 'col', class: 'number'}, 'Cases'), tensors.map((t) => el('th', {scope: 'col', class: 'number'}, t)),
    el('th', {scope: 'col', class: 'number'}, 'Counting'))),
  el('tbody', {}, [...groups.values()].map((list) => {
    const counted = list.filter((c) => c.accuracy.counting), passed = counted.filter((c) => c.accuracy.counting === 'pass');
    return el('tr', {}, el('th', {scope: 'row'}, dot(list[0].kernel), list[0].kernel), el('td', {}, list[0].dtype),
      el('td', {class: 'number'}, String(list.length)),
      tensors.map((tensor) => {
        const figures = list.map((c) => (c.accuracy.errors || {})[tensor]).filter(known);
        if (!figures.length) return el('td', {class: 'number muted'}, '–');
        const [error, tolerance] = figures.reduce((a, b) => b[0] / (b[1] || 1) > a[0] / (a[1] || 1) ? b : a);
        const over = tolerance && error > tolerance;
        return el('td', {class: 'number' + (over ? ' bad-text' : '')}, error.toExponential(1),
          tolerance ? el('span', {class: 'muted'}, ` (${formatShare(error / tolerance)})`) : '');
      }),
      el('td', {class: 'number' + (passed.length < counted.length ? ' bad-text' : '')},
        counted.length ? `${passed.length} of ${counted.length} pass` : '–'));
  }))));
}

function drawMasks(shown) {
  const wanted = new Set(shown.map((c) => c.mask));
  const longest = new Map();
  for (const picture of data.pictures) {
    const key = picture.mask + '\n' + (picture.lengths || '');
    if (!wanted.has(picture.mask) || (longest.has(key) && longest.get(key).seqlen >= picture.seqlen)) continue;
    longest.set(key, picture);
  }
  setSection('masks', ...[...longest.values()].map((picture) => {
    const canvas = el('canvas', {width: picture.size, height: picture.size, role: 'img', 'aria-label': `the mask ${picture.mask}`});
    const ctx = canvas.getContext('2d');
    const image = ctx.createImageData(picture.size, picture.size);
    const [ink, paper] = ['--ink', '--paper'].map((name) => cssColour(name).match(/\d+/g).map(Number));
    for (let i = 0; i < picture.size * picture.size; ++i) {
      // A cell with few visible pairs must not look empty.
      const level = parseInt(picture.cells.substr(2 * i, 2), 16), t = level ? 0.12 + 0.88 * level / 255 : 0;
      for (let k = 0; k < 3; ++k) image.data[4 * i + k] = Math.round(paper[k] + t * (ink[k] - paper[k]));
      image.data[4 * i + 3] = 255;
    }
    ctx.putImageData(image, 0, 0);
    return el('figure', {class: 'mask'}, canvas, el('figcaption', {}, el('strong', {}, maskName(picture.mask)),
      el('span', {class: 'muted'}, [formatLength(picture.seqlen), known(picture.density) ? formatShare(picture.density) + ' visible' : null,
        picture.lengths ? 'lengths ' + picture.lengths : null].filter(Boolean).join(', '))));
  }));
}

function drawUnmeasured(shown) {
  const blocks = ['failed', 'skipped'].map((status) => {
    const groups = new Map();
    for (const c of shown.filter((x) => x.status === status)) {
      const key = c.kernel + '\n' + (c.reason || 'no reason given');
      groups.set(key, (groups.get(key) || []).concat(c));
    }
    if (groups.size === 0) return null;
    return el('div', {}, el('h3', {class: status}, status === 'failed' ? 'Failed' : 'Skipped'), el('ul', {class: 'reasons'},
      [...groups.values()].sort((a, b) => kernelRank(a[0]) - kernelRank(b[0])).map((list) => el('li', {}, el('details', {}, el('summary', {}, dot(list[0].kernel),
        el('strong', {}, list[0].kernel), ' ', el('span', {class: 'reason'}, list[0].reason || 'no reason given'), ' ',
        el('span', {class: 'badge'}, String(list.length))),
      el('ul', {class: 'members'}, list.map((c) => el('li', {}, caseName(c), c.command ? copyButton(c.command, 'Copy command') : null))))))));
  }).filter(Boolean);
  setSection('unmeasured', ...blocks);
}

const caseName = (c) => [c.mask, formatLength(c.seqlen), c.direction, c.dtype, c.heads + ' heads', ...(c.deterministic ? ['deterministic'] : []), ...extraKeys
  .filter((key) => known(c.extra[key])).map((key) => `${key} ${c.extra[key]}`)].join(', ');

function copyButton(text, label) {
  return el('button', {type: 'button', class: 'quiet copy', title: text, onclick: async (event) => {
    const button = event.currentTarget;
    event.stopPropagation();
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // some browsers deny local files access to the clipboard
      const area = el('textarea', {class: 'off-screen'});
      area.value = text;
      document.body.append(area);
      area.select();
      done = document.execCommand('copy');
      area.remove();
    }
    button.textContent = done ? 'Copied' : 'Not allowed';
    setTimeout(() => { button.textContent = label; }, 1500);
  }}, label);
}

// The table of all cases. A column has a heading, a value to sort by and the content of a cell.
const spreadWidth = 96;
function spreadScale(list) {
  const all = list.flatMap((c) => c.samples || []).map(Math.abs).sort((a, b) => a - b);
  return Math.min(500, Math.max(10, all[Math.floor(0.98 * all.length)] || 10));
}
function spread(c, scale) {
  if (!c.samples) return '';
  const x = (deviation) => spreadWidth / 2 + Math.max(-1, Math.min(1, deviation / scale)) * (spreadWidth / 2 - 3);
  const marks = c.samples.map((s, i) => `M${x(s).toFixed(1)} ${3 + i * 12 / Math.max(1, c.samples.length - 1)}h.01`).join('');
  const picture = svg('svg', {class: 'spread', width: spreadWidth, height: 18, role: 'img'},
    svg('line', {x1: spreadWidth / 2, x2: spreadWidth / 2, y1: 0, y2: 18}), svg('path', {d: marks, stroke: kernelColour(c.kernel)}));
  picture.append(svg('title', {}, `${plural(c.n, 'sample')}, in the order taken from the top; deviation from the median`));
  return picture;
}

const columns = [
  {name: 'kernel', label: 'Kernel', of: (c) => c.kernel, cell: (c) => [dot(c.kernel), c.kernel], always: true},
  {name: 'mask', label: 'Mask', of: (c) => c.mask, cell: (c) => maskName(c.mask), always: true},
  {name: 'run', label: 'Run', of: (c) => c.setupLabel},
  {name: 'seqlen', label: 'Length', number: true, of: (c) => c.seqlen, text: formatLength, always: true},
  {name: 'direction', label: 'Pass', of: (c) => c.direction},
  {name: 'dtype', label: 'Type', of: (c) => c.dtype},
  {name: 'heads', label: 'Heads', of: (c) => c.heads},
  {name: 'head_dim', label: 'Head dim', number: true, of: (c) => c.head_dim},
  {name: 'lengths', label: 'Documents', of: (c) => c.lengths},
  {name: 'deterministic', label: 'Every run', of: bitsOf},
  ...extraKeys.map((key) => ({name: 'x-' + key, label: key, of: (c) => c.extra[key]})),
  {name: 'rate', label: rateUnit[0], number: true, of: (c) => c.rate, text: formatRate, always: true},
  {name: 'share', label: 'Share', number: true, of: (c) => c.share, text: formatShare, always: true},
  {name: 'time', label: 'Time', number: true, of: (c) => c.time, text: formatTime, always: true},
  {name: 'interval', label: '95 %', number: true, of: (c) => c.interval && (c.interval[1] - c.interval[0]) / c.time,
    cell: (c) => c.interval ? [`−${percent(1 - c.interval[0] / c.time)} +${percent(c.interval[1] / c.time - 1)} %`,
      c.unconverged ? el('span', {class: 'warn-text', title: 'wider than the rule requires when the time budget ended'}, ' ~') : null] : '', always: true},
  {name: 'spread', label: 'Samples', number: false, of: (c) => c.n, cell: (c, scale) => spread(c, scale), always: true},
  {name: 'error', label: 'Error', number: true, of: worstError, text: formatShare, always: true},
  {name: 'peak', label: 'Memory', number: true, of: (c) => c.peak, text: formatBytes},
  {name: 'total', label: 'Total', number: true, of: (c) => c.total, text: formatBytes},
  {name: 'plan', label: 'Planning', number: true, of: (c) => c.plan, text: formatTime},
  {name: 'density', label: 'Visible', number: true, of: (c) => c.density, text: formatShare},
];
const percent = (x) => (100 * Math.max(0, x)).toFixed(1);

function sortCases(list, sort) {
  const column = columns.find((c) => c.name === sort.by);
  if (!column) return list;
  const sign = sort.down ? -1 : 1;
  return [...list].sort((a, b) => {
    const x = column.of(a), y = column.of(b);
    if (!known(x) || !known(y)) return known(y) - known(x);  // missing values come last in either order
    return sign * (typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y), 'en', {numeric: true})) || a.index - b.index;
  });
}

const details = (c) => {
  const fact = (name, value) => known(value) && value !== '' ? [el('dt', {}, name), el('dd', {}, value)] : [];
  const errors = Object.entries((c.accuracy || {}).errors || {}).map(([tensor, [error, tolerance]]) =>
    `${tensor} ${error.toExponential(1)}` + (tolerance ? ` of ${tolerance.toExponential(1)} allowed` : '')).join('; ');
  return [
    c.command ? el('p', {class: 'command'}, el('code', {}, c.command), copyButton(c.command, 'Copy')) : null,
    el('dl', {}, fact('Case', `${c.kernel}, ${caseName(c)}, head_dim ${c.head_dim}`), fact('Errors', errors),
      fact('Counting check', (c.accuracy || {}).counting), fact('Two runs gave the same bits', (c.accuracy || {}).same_bits), fact('Visible pairs', formatCount(c.area)), fact('Masks averaged', c.masks),
      fact('Samples', c.n && String(c.n)), fact('Retaken after throttling', c.throttled ? String(c.throttled) : ''),
      fact('Plan holds', formatBytes(c.plan_bytes)), fact('Workspace', formatBytes(c.workspace)), fact('Peak memory', formatBytes(c.peak)),
      fact('With inputs and outputs', formatBytes(c.total)),
      (c.state || []).flatMap(([name, value]) => fact(name, value)), fact('Run', c.setupLabel), fact('Identifier', c.id)),
  ];
};

const firstRows = 60;
function drawRows(shown, view) {
  const ok = okOf(shown);
  if (!ok.length) return setSection('rows');
  const seen = columns.map((column) => ({column, values: unique(ok.map(column.of).filter((v) => known(v) && v !== ''))}));
  let visible = seen.filter(({column, values}) => values.length > 1 || (column.always && values.length > 0)).map((s) => s.column);
  if (window.innerWidth < 700) {  // the main figures first, without scrolling sideways
    const first = ['kernel', 'mask', 'rate', 'share', 'seqlen', 'direction'];
    const rank = (column) => first.includes(column.name) ? first.indexOf(column.name) : first.length;
    visible = [...visible].sort((a, b) => rank(a) - rank(b));
  }
  const constant = seen.filter(({column, values}) => !column.always && !visible.includes(column) && values.length === 1)
    .map(({column, values}) => `${column.label.toLowerCase()} ${column.text ? column.text(values[0]) : values[0]}`);
  const scale = spreadScale(ok);
  byId('rows-note').textContent = (constant.length ? `Every case: ${constant.join(', ')}. ` : '') +
    `Samples are drawn from −${percent(scale / 1000)} to +${percent(scale / 1000)}\u00a0% around the median. Click a row for the command that repeats the case.`;
  const sorted = sortCases(ok, view.sort);
  const body = el('tbody', {});
  const addRows = (list) => body.append(...list.map((c) => {
    const row = el('tr', {class: 'case', tabindex: 0, 'data-case': c.id, 'aria-expanded': 'false'}, visible.map((column) =>
      el('td', {class: column.number ? 'number' : '', 'data-column': column.name}, column.cell ? column.cell(c, scale) : column.text ? column.text(column.of(c)) : String(column.of(c) ?? ''))));
    const toggle = () => {
      const open = row.getAttribute('aria-expanded') === 'true';
      row.setAttribute('aria-expanded', String(!open));
      if (open) row.nextSibling.remove();
      else row.after(el('tr', {class: 'details'}, el('td', {colspan: visible.length}, el('div', {class: 'details-box'}, details(c)))));
      view.set({case: open ? undefined : c.id});
    };
    row.addEventListener('click', toggle);
    row.addEventListener('keydown', (event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); toggle(); } });
    return row;
  }));
  const all = view.allRows || sorted.length <= firstRows + 20;
  addRows(all ? sorted : sorted.slice(0, firstRows));
  const heading = (column) => el('th', {scope: 'col', class: column.number ? 'number' : '',
    'aria-sort': view.sort.by === column.name ? (view.sort.down ? 'descending' : 'ascending') : 'none'},
  el('button', {type: 'button', 'data-sort': column.name, onclick: () => {
    const down = view.sort.by === column.name ? !view.sort.down : Boolean(column.number) && column.name !== 'seqlen';
    view.change({sort: {by: column.name, down}});
  }}, column.label));
  const parts = [el('table', {id: 'cases'}, el('thead', {}, el('tr', {}, visible.map(heading))), body)];
  if (!all) {
    parts.push(el('p', {class: 'more'}, el('button', {type: 'button', class: 'quiet', id: 'all-rows', onclick: (event) => {
      addRows(sorted.slice(firstRows));
      event.currentTarget.parentElement.remove();
      view.set({allRows: true});
    }}, `Show all ${sorted.length}`)));
  }
  setSection('rows', ...parts);
}

// RFC 4180. A leading = + - or @ is escaped, since spreadsheets would run it as a formula.
function csvOf(list) {
  const quote = (value) => {
    let text = known(value) ? String(value) : '';
    if (typeof value === 'string' && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
    return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  const fields = [['run', (c) => c.setupLabel], ['id', (c) => c.id], ['status', (c) => c.status], ['reason', (c) => c.reason],
    ['kernel', (c) => c.kernel], ['mask', (c) => c.mask], ['seqlen', (c) => c.seqlen], ['direction', (c) => c.direction],
    ['dtype', (c) => c.dtype], ['heads', (c) => c.heads], ['head_dim', (c) => c.head_dim], ['lengths', (c) => c.lengths],
    ['deterministic', (c) => String(!!c.deterministic)],
    ...extraKeys.map((key) => [key, (c) => c.extra[key]]), ['density', (c) => c.density], ['area', (c) => c.area],
    ['flops_per_s', (c) => c.rate], ['share_of_ceiling', (c) => c.share], ['time_s', (c) => c.time],
    ['time_lo_s', (c) => c.interval && c.interval[0]], ['time_hi_s', (c) => c.interval && c.interval[1]], ['samples', (c) => c.n],
    ['error_over_tolerance', worstError], ['peak_bytes', (c) => c.peak], ['total_bytes', (c) => c.total], ['plan_s', (c) => c.plan], ['command', (c) => c.command]];
  return [fields.map(([name]) => quote(name)).join(','), ...list.map((c) => fields.map(([, of]) => quote(of(c))).join(','))].join('\r\n') + '\r\n';
}

function downloadCsv(list) {
  const link = el('a', {href: URL.createObjectURL(new Blob([csvOf(list)], {type: 'text/csv'})), download: 'longspan.csv'});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function factText(name, value) {
  if (/_bytes$/.test(name) && value > 0) return formatBytes(Number(value));
  if (/_s$/.test(name) && value > 0) return formatTime(Number(value));
  return value;
}

// The ceilings of all runs of a setup, by dtype. Each run measured its own, on its own device.
function ceilingsOf(setup) {
  const all = setup.runs.flatMap((run) => run.ceilings);
  return unique(all.map((c) => c.dtype)).map((dtype) => {
    const same = all.filter((c) => c.dtype === dtype), rates = same.map((c) => c.rate).sort((a, b) => a - b);
    const [low, high] = [rates[0], rates[rates.length - 1]].map((rate) => scaled(rate, rateUnits));
    return {dtype, what: same[0].what, text: low === high ? low : `${low} to ${high}`};
  });
}

function drawRuns() {
  const uuidOf = (run) => (run.device.find(([fact]) => fact === 'uuid') || [])[1];
  // Several devices start together. A later run on the same device resumes the earlier one.
  const begun = (setup, run, i) => setup.runs.slice(0, i).some((r) => uuidOf(r) === uuidOf(run)) ? 'Resumed ' : '';
  const where = (setup, run) => unique(setup.runs.map(uuidOf)).length > 1 ? ` on ${uuidOf(run)}` : '';
  const names = {machine: 'Machine', device: 'Device', software: 'Software', rule: 'Timing rule'};
  const readable = (name) => name.replace(/_(bytes|s)$/, '').replaceAll('_', ' ').replace(/^libraries\./, '');
  setSection('runs', ...data.setups.map((setup) => {
    const run = setup.runs[0];
    return el('div', {class: 'setup'}, el('h3', {}, setup.label),
      setup.runs.map((r, i) => el('p', {class: 'command'}, el('span', {class: 'muted'}, begun(setup, r, i) + (r.started || '') + where(setup, r)),
        r.command ? [el('code', {}, r.command), copyButton(r.command, 'Copy')] : null)),
      el('div', {class: 'facts'},
        ceilingsOf(setup).length ? el('div', {}, el('h4', {}, 'Ceiling'), el('dl', {}, ceilingsOf(setup).flatMap((ceiling) => [
          el('dt', {}, ceiling.dtype), el('dd', {}, ceiling.text, el('span', {class: 'muted'}, ' ' + ceiling.what))]))) : null,
        Object.entries(names).filter(([key]) => run[key].length).map(([key, name]) => el('div', {}, el('h4', {}, name),
          el('dl', {}, run[key].flatMap(([fact, value]) => [el('dt', {}, readable(fact)), el('dd', {}, factText(fact, value))]))))));
  }));
}
