// The data of the page, and the formatting of numbers and names. Text from a results file is inserted only
// through `el` and textContent, never as markup.

const data = JSON.parse(document.getElementById('data').textContent);
const cases = data.cases;
const manySetups = data.setups.length > 1;
cases.forEach((c, index) => {
  c.index = index;
  c.setupLabel = (data.setups[c.setup] || {label: '?'}).label;
  c.sourceLabel = (data.setups[c.setup] || {source: '?'}).source;
  c.extra = c.extra || {};
  c.options = c.options || {};
});

// el('td', {class: 'x', onclick: f}, 'text', node, ...)
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'style') Object.entries(value).forEach(([k, v]) => node.style.setProperty(k, v));
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const svgName = 'http://www.w3.org/2000/svg';
function svg(tag, attributes, ...children) {
  const node = document.createElementNS(svgName, tag);
  Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));
  node.append(...children);
  return node;
}

const byId = (id) => document.getElementById(id);
const unique = (values) => [...new Set(values)];
const known = (value) => value !== undefined && value !== null;

// Three significant digits.
function digits(value) {
  if (!known(value)) return '';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(1);
  return value.toFixed(Math.max(0, 2 - Math.floor(Math.log10(Number(size.toPrecision(3))))));
}
function scaled(value, units) {
  const unit = units.find(([, scale]) => value >= 0.9995 * scale) || units[units.length - 1];
  return digits(value / unit[1]) + ' ' + unit[0];
}
const rateUnits = [['PFLOP/s', 1e15], ['TFLOP/s', 1e12], ['GFLOP/s', 1e9], ['MFLOP/s', 1e6]];
const timeUnits = [['s', 1], ['ms', 1e-3], ['µs', 1e-6], ['ns', 1e-9]];
const byteUnits = [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 1024], ['B', 1]];
const unitOf = (value, units) => units.find(([, scale]) => value >= 0.9995 * scale) || units[units.length - 1];

const formatTime = (s) => known(s) ? scaled(s, timeUnits) : '';
const formatBytes = (b) => known(b) ? scaled(b, byteUnits) : '';
const formatShare = (x) => known(x) ? (100 * x).toFixed(100 * x < 9.95 ? 1 : 0) + ' %' : '';
function formatLength(n) {
  if (n >= 2 ** 20 && n % 2 ** 20 === 0) return n / 2 ** 20 + 'M';
  return n >= 1024 && n % 1024 === 0 ? n / 1024 + 'K' : String(n);
}
function formatCount(n) {
  if (!known(n)) return '';
  return n < 1e6 ? String(Math.round(n)) : n.toExponential(2);
}
const plural = (n, word) => n + ' ' + word + (n === 1 ? '' : 's');

// One unit for all rates of the page, so that numbers are easy to compare.
const rateUnit = unitOf(Math.max(0, ...cases.map((c) => c.rate || 0)), rateUnits);
// A much lower rate, such as a CPU's next to a GPU's, has its own unit.
function formatRate(rate) {
  if (!known(rate)) return '';
  const unit = rate < 0.05 * rateUnit[1] ? unitOf(rate, rateUnits) : rateUnit;
  return digits(rate / unit[1]) + (unit === rateUnit ? '' : ' ' + unit[0][0]);
}

// The largest error relative to its tolerance.
function worstError(c) {
  const shares = Object.values((c.accuracy || {}).errors || {})
    .filter(([, tolerance]) => tolerance > 0).map(([error, tolerance]) => error / tolerance);
  return shares.length ? Math.max(...shares) : undefined;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// Colours that stay distinguishable, in this order, with any common colour blindness (after Okabe and Ito,
// and Tol), with one tone per colour scheme. Beyond the first eight, the shape of the point distinguishes
// series.
const palette = [
  ['#0b62a8', '#5aa9f0'], ['#c8500a', '#f2915a'], ['#0a8a66', '#37c79d'], ['#9b4f96', '#d391d3'],
  ['#a87700', '#e3b93f'], ['#3b9bcb', '#8ad4f5'], ['#8a1c4a', '#e2779f'], ['#6d7711', '#bcc650'],
  ['#4b3fa8', '#a198f4'], ['#626a75', '#a9b1bc'], ['#00767d', '#3fbdc4'], ['#7a4a21', '#cd9c6c'],
];
const shapes = ['circle', 'rect', 'triangle', 'rectRot', 'star', 'crossRot'];
// A colour in both schemes: one that the palette lacks is lightened for the dark one.
const lightened = (colour) => '#' + [1, 3, 5].map((at) => Math.round(0.55 * parseInt(colour.slice(at, at + 2), 16) + 0.45 * 255)
  .toString(16).padStart(2, '0')).join('');
const tonesOf = (colour) => palette.find(([light]) => light === colour) || [colour, lightened(colour)];
// A kernel has one colour in every report, by the program's tables; kernels of one colour differ by shape. Kernels of
// other names take what is free, by their name.
const kernelStyle = (() => {
  const styles = new Map(), kernelsOf = new Map();
  for (const {name, colour} of data.kernels) {
    const shape = kernelsOf.get(colour) || 0;
    kernelsOf.set(colour, shape + 1);
    styles.set(name, {tones: tonesOf(colour), shape});
  }
  const names = unique(cases.map((c) => c.kernel)), keyOf = ({tones, shape}) => tones[0] + shape;
  const taken = new Set(names.filter((name) => styles.has(name)).map((name) => keyOf(styles.get(name))));
  for (const name of names.filter((n) => !styles.has(n)).sort()) {
    let hash = 0;
    for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
    const styleOf = (number) => ({tones: palette[number % palette.length], shape: Math.floor(number / palette.length) % shapes.length});
    let number = hash % palette.length;
    for (let tries = 0; taken.has(keyOf(styleOf(number))) && tries < shapes.length * palette.length; ++tries) ++number;
    styles.set(name, styleOf(number));
    taken.add(keyOf(styleOf(number)));
  }
  return styles;
})();
const darkScheme = window.matchMedia('(prefers-color-scheme: dark)');
const kernelColour = (kernel) => kernelStyle.get(kernel).tones[darkScheme.matches ? 1 : 0];
// What competes in a case: a kernel, or on several ranks the strategy that spreads it.
const spreadKernels = unique(cases.filter((c) => c.extra.strategy).map((c) => c.kernel));
const contender = (c) => !c.extra.strategy ? c.kernel : spreadKernels.length > 1 ? `${c.kernel} · ${c.extra.strategy}` : c.extra.strategy;
const strategyKeys = ['strategy', ...data.strategyOptions, 'transport'];
// A strategy has the same colour in every report, by its place in the program's table; unknown strategies
// follow.
const strategyOrder = [...data.strategies, ...unique(cases.map((c) => c.extra.strategy).filter(Boolean))
  .filter((name) => !data.strategies.includes(name)).sort()];
const strategyColour = (name) => palette[strategyOrder.indexOf(name) % palette.length][darkScheme.matches ? 1 : 0];
const colourOf = (c) => c.extra.strategy ? strategyColour(c.extra.strategy) : kernelColour(c.kernel);
const kernelShape = (kernel, variant) => shapes[(kernelStyle.get(kernel).shape + variant) % shapes.length];
const kernelOrder = unique(cases.map((c) => c.kernel));
const kernelRank = ({kernel}) => kernelOrder.indexOf(kernel);
const dot = (kernel) => el('span', {class: 'dot', 'data-kernel': kernel, style: {'--c': kernelColour(kernel)}});

// Named for every case if any case requires the same bits on every run, since such rates do not compete with
// the others.
const anyDeterministic = cases.some((c) => c.deterministic);
const bitsOf = (c) => !anyDeterministic ? '' : c.deterministic ? 'same bits' : 'bits may differ';
// The axes other than kernel, mask, length and direction. Those that vary among the cases shown distinguish
// series.
const optionKeys = unique(cases.flatMap((c) => Object.keys(c.options)));
const extraKeys = unique(cases.flatMap((c) => Object.keys(c.extra)));
// A case without these keys is plain attention. It shows 'none', so that it does not compete with cases that have them.
const scoreKeys = ['head_dim_v', 'sinks', 'softcap', 'alibi'];
const extraOf = (key) => (c) => known(c.extra[key]) ? c.extra[key] : scoreKeys.includes(key) ? 'none' : undefined;
const contextAxes = [
  ...(manySetups ? [{name: 'run', of: (c) => c.setupLabel}] : []),
  {name: 'heads', of: (c) => c.heads}, {name: 'head_dim', of: (c) => 'd' + c.head_dim}, {name: 'dtype', of: (c) => c.dtype},
  {name: 'lengths', of: (c) => c.lengths || ''}, {name: 'deterministic', of: bitsOf},
  ...extraKeys.map((key) => ({name: key, of: (c) => known(extraOf(key)(c)) ? key + ' ' + extraOf(key)(c) : ''})),
];
// The source of document lengths is part of the mask; the other axes are part of the series.
const varying = (list, without) => contextAxes.filter((axis) =>
  axis.name !== without && unique(list.map(axis.of).filter((v) => v !== '')).length > 1);
// The same axes, except that results are separated by file instead of by build and machine.
function apartBySource(list, axes) {
  const source = unique(list.map((c) => c.sourceLabel)).length > 1 ? [{name: 'run', of: (c) => c.sourceLabel}] : [];
  return axes.flatMap((axis) => axis.name === 'run' ? source : [axis]);
}
// A mask's name, with its options below.
function maskName(text) {
  const space = text.indexOf(' ');
  // Lets a long name break after each underscore.
  const breaking = (name) => name.split(/(?<=_)/).flatMap((part, i) => i ? [el('wbr'), part] : [part]);
  return space < 0 ? breaking(text) : [...breaking(text.slice(0, space)), el('span', {class: 'below'}, text.slice(space + 1).replace(/^· /, ''))];
}
const contextOf = (c, axes) => axes.map((axis) => axis.of(c)).filter((v) => v !== '').join(' · ');
// The same without what is plain attention, for names that must be short.
const plainValues = new Set(['bits may differ', ...scoreKeys.map((key) => key + ' none')]);
const shortContextOf = (c, axes) => contextOf(c, axes.filter((axis) => !plainValues.has(axis.of(c))));
