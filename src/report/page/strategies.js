// Strategies side by side: the rate per rank by mask, next to the rate of one device.

// One unit for all rates per rank.
const rankRate = (c) => known(c.rate) ? c.rate / (c.parallel ? c.parallel.ranks : 1) : undefined;
const rankUnit = unitOf(Math.max(0, ...cases.filter((c) => c.parallel).map(rankRate).filter(known)), rateUnits);
const formatRankRate = (rate) => known(rate) ? digits(rate / rankUnit[1]) : '';

// Strategies side by side on the same number of ranks of one setup. One panel per number of tokens per rank
// and pass. A bar shows a strategy with its best degrees; a line shows one device with the tokens of one
// rank.
function drawStrategies(spread, view) {
  // Builds and machines of one file share a chart.
  const axes = apartBySource(spread, varying(spread, 'lengths')).filter((axis) => !strategyKeys.includes(axis.name));
  const groupOf = (c) => [plural(c.parallel.ranks, 'rank'), ...axes.filter((axis) => axis.name !== 'ranks').map((axis) => axis.of(c)),
    spreadKernels.length > 1 ? c.kernel : ''].filter(Boolean).join(' · ');
  const groups = unique(spread.map(groupOf)), count = (group) => spread.filter((c) => groupOf(c) === group).length;
  const fullest = groups.reduce((a, b) => count(b) > count(a) ? b : a);
  const group = fillSelect(byId('pick-ranks'), groups.map((g) => [g, g]), groups.includes(view.ranks) ? view.ranks : fullest);
  byId('pick-ranks').parentElement.hidden = groups.length === 1;
  const list = spread.filter((c) => groupOf(c) === group), narrow = window.innerWidth < 700;
  const several = severalLengths(list), label = (c) => maskLabel(c, several);
  const strategies = strategyOrder.filter((name) => list.some((c) => c.extra.strategy === name));
  const tokens = (c) => c.seqlen / c.parallel.ranks, text = (v) => `${digits(v)} ${rankUnit[0]}`;
  const metric = {title: `${rankUnit[0]} per rank`, text}, box = byId('parallel-charts');
  const singles = new Map(list.map((c) => [c, singleOf(c, tokens(c))]));
  const top = Math.max(...list.map(rankRate), ...[...singles.values()].filter(Boolean).map(rankRate)) / rankUnit[1];
  const allMasks = unique(list.map(label));
  box.replaceChildren();
  byId('strategies-legend').replaceChildren(...strategies.map((name) =>
    el('span', {class: 'key'}, el('span', {class: 'dot', style: {'--c': strategyColour(name)}}), name)),
  ...([...singles.values()].some(Boolean) ? [el('span', {class: 'key'}, el('span', {class: 'dash'}), 'one device')] : []));
  for (const direction of unique(list.map((c) => c.direction))) {
    for (const held of unique(list.map(tokens)).sort((a, b) => a - b)) {
      const here = list.filter((c) => c.direction === direction && tokens(c) === held && known(c.rate));
      if (!here.length) continue;
      const masks = allMasks.filter((mask) => here.some((c) => label(c) === mask)), best = (name, mask) => here.filter((c) => c.extra.strategy === name && label(c) === mask)
        .reduce((a, b) => !a || b.rate > a.rate ? b : a, null);
      const one = masks.map((mask) => singles.get(here.find((c) => label(c) === mask && singles.get(c))));
      const bars = strategies.filter((name) => here.some((c) => c.extra.strategy === name)).map((name) => {
        const chosen = masks.map((mask) => best(name, mask));
        return {type: 'bar', label: name, data: chosen.map((c) => c ? rankRate(c) / rankUnit[1] : null),
          ends: chosen.map((c) => c && c.interval ? c.interval.map((t) => rankRate(c) * c.time / t / rankUnit[1]).reverse() : null),
          backgroundColor: strategyColour(name), borderWidth: 0, categoryPercentage: 0.82, barPercentage: 0.94,
          maxBarThickness: 40, skipNull: true};
      });
      const reach = ({chart}) => chart.chartArea ? 0.43 * chart.chartArea.width / masks.length : 12;  // as wide as a mask's bars
      const line = {type: 'line', label: 'one device', showLine: false, data: one.map((c) => c ? c.rate / rankUnit[1] : null),
        pointStyle: 'line', pointRadius: reach, pointHoverRadius: reach,
        borderColor: cssColour('--text'), borderWidth: 2};
      drawPanel(box, `strategies-${direction}-${held}`, `${formatLength(held)} tokens per rank, ${direction}`, narrow ? 240 : 280,
        {type: 'bar', data: {labels: masks, datasets: [line, ...bars]}, options: {...chartOptions(metric, false, narrow, top), layout: {autoPadding: false}}});
    }
  }
}
