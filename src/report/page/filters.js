// The filters: one group of buttons per axis. If no button of a group is pressed, all values are shown.
// Filters apply to charts and tables, and are stored in the URL so that a view can be shared.

const filterAxes = [
  {name: 'run', label: 'Run', of: (c) => c.setupLabel},
  {name: 'kernel', label: 'Kernel', of: (c) => c.kernel},
  {name: 'direction', label: 'Direction', of: (c) => c.direction},
  {name: 'mask', label: 'Mask', of: (c) => c.pattern},
  {name: 'seqlen', label: 'Length', of: (c) => c.seqlen, text: formatLength, numeric: true},
  ...optionKeys.map((key) => ({name: 'o-' + key, label: key[0].toUpperCase() + key.slice(1).replaceAll('_', ' '),
    of: (c) => c.options[key], numeric: cases.every((c) => !known(c.options[key]) || isFinite(c.options[key]))})),
  {name: 'heads', label: 'Heads', of: (c) => c.heads},
  {name: 'head_dim', label: 'Head dim', of: (c) => c.head_dim, numeric: true},
  {name: 'dtype', label: 'Type', of: (c) => c.dtype},
  {name: 'lengths', label: 'Documents', of: (c) => c.lengths},
  {name: 'deterministic', label: 'Every run', of: bitsOf},
  ...extraKeys.map((key) => ({name: 'x-' + key, label: key, of: extraOf(key)})),
].map((axis) => {
  axis.values = unique(cases.map(axis.of).filter(known).map(String));
  if (axis.numeric) axis.values.sort((a, b) => a - b);
  axis.chosen = new Set();
  return axis;
}).filter((axis) => axis.values.length > 1);

const passes = (c, axis) => axis.chosen.size === 0 || axis.chosen.has(String(axis.of(c)));
const shownCases = () => cases.filter((c) => filterAxes.every((axis) => passes(c, axis)));

function readAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  for (const axis of filterAxes) {
    axis.chosen = new Set(wanted.getAll(axis.name).filter((value) => axis.values.includes(value)));
  }
  return wanted;
}

function writeAddress(view) {
  const wanted = new URLSearchParams();
  for (const axis of filterAxes) axis.chosen.forEach((value) => wanted.append(axis.name, value));
  Object.entries(view).forEach(([name, value]) => known(value) && wanted.set(name, value));
  try {
    history.replaceState(null, '', '#' + wanted);
  } catch {
    // Some browsers refuse this for a local file. Then the URL does not store the view; all else works.
  }
}

function buildFilters(changed) {
  const box = byId('filters');
  box.replaceChildren(...filterAxes.map((axis) => {
    const buttons = axis.values.map((value) => el('button', {
      type: 'button', class: 'chip', 'data-value': value, 'aria-pressed': 'false',
      onclick: () => {
        axis.chosen.has(value) ? axis.chosen.delete(value) : axis.chosen.add(value);
        if (axis.chosen.size === axis.values.length) axis.chosen.clear();
        changed();
      },
    }, ...(axis.name === 'kernel' ? [dot(value)] : []), axis.text ? axis.text(Number(value)) : value));
    return el('fieldset', {'data-axis': axis.name}, el('legend', {}, axis.label), el('div', {class: 'chips'}, buttons));
  }));
  byId('reset').onclick = () => {
    filterAxes.forEach((axis) => axis.chosen.clear());
    changed();
  };
}

// Shows which buttons are pressed, and dims those that would show no case under the other filters.
function updateFilters(shown) {
  let active = 0;
  for (const axis of filterAxes) {
    active += axis.chosen.size > 0;
    const others = cases.filter((c) => filterAxes.every((other) => other === axis || passes(c, other)));
    const possible = new Set(others.map((c) => String(axis.of(c))));
    for (const button of document.querySelectorAll(`fieldset[data-axis="${CSS.escape(axis.name)}"] button`)) {
      button.setAttribute('aria-pressed', String(axis.chosen.has(button.dataset.value)));
      button.classList.toggle('empty', !possible.has(button.dataset.value));
    }
  }
  byId('filter-count').hidden = active === 0;
  byId('filter-count').textContent = active;
  byId('reset').disabled = active === 0;
  byId('shown-count').textContent =
    shown.length === cases.length ? plural(cases.length, 'case') : `${shown.length} of ${plural(cases.length, 'case')}`;
}
