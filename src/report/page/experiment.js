// What a paper expects of an experiment, and whether the results agree. The program has computed the verdicts.

const verdictClass = {'agrees': 'good', 'agrees in part': 'part', 'does not agree': 'bad', 'not measured': 'none'};
const verdictBadge = (verdict) => el('span', {class: 'verdict ' + (verdictClass[verdict] || 'none')}, verdict);

function findingRow(claim, finding) {
  const measured = finding.verdict !== 'not measured';
  return el('tr', {}, el('td', {}, finding.at), el('td', {}, verdictBadge(finding.verdict)),
    measured ? [el('td', {}, finding.a), el('td', {}, finding.b), el('td', {class: 'number'}, finding.ratio),
      el('td', {class: 'muted'}, [finding.context, finding.apart ? 'of different runs' : ''].filter(Boolean).join(' · '))]
      : el('td', {colspan: 4, class: 'muted'}, finding.reason));
}

function drawExperiment() {
  const experiment = data.experiment;
  if (!experiment) return;
  byId('experiment').hidden = false;
  byId('experiment-title').textContent = experiment.title;
  const counts = unique(experiment.claims.map((c) => c.verdict)).map((v) => `${v}: ${experiment.claims.filter((c) => c.verdict === v).length}`);
  byId('experiment-note').textContent = `What ${experiment.paper} found, and what was measured here (${counts.join(', ')}). ` +
    'Verdicts are computed from the results. A ratio is the first case over the second, of rates or of memory; filters do not apply.';
  byId('experiment-body').replaceChildren(...experiment.claims.map((claim) => el('div', {class: 'claim'},
    el('h3', {}, verdictBadge(claim.verdict), ' ', claim.text),
    el('p', {class: 'muted'}, ['Paper: ' + claim.source, claim.figure, `measured: ${claim.measured}`].filter(Boolean).join('; ')),
    el('div', {class: 'scroll'}, el('table', {}, el('thead', {}, el('tr', {}, [claim.over, 'verdict', 'first', 'second', 'ratio', ''].map((h) => el('th', {class: h === 'ratio' ? 'number' : undefined}, h)))),
      el('tbody', {}, claim.findings.map((finding) => findingRow(claim, finding))))),
    claim.why ? el('p', {class: 'why'}, 'Why: ' + claim.why) : null)));
}
