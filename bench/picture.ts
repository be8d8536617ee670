// Draws the comparison: the requests per second that one core can serve. Each of four workloads has a panel with a bar per
// contender. The SVG has colours for light and dark, and real text for search and screen readers.
import { CONTENDERS } from './contenders.ts';
import type { Results } from './results.ts';
import { escapeText } from './tables.ts';
import { WORKLOADS } from './workloads.ts';

const PANELS = ['item', 'list100', 'put', 'post'];
/** Contenders without a bar: the relay that does not read HTTP, and the gateway in another host or with another log level. */
const WITHOUT_BAR = ['node-net', 'gateway-plugin', 'next-gateway', 'gateway-info'];
const WIDTH = 880;
const PANEL_WIDTH = 410;
const LABEL_WIDTH = 168;
const VALUE_WIDTH = 52;
const ROW_HEIGHT = 19;

const STYLE = `
  text { font: 12px system-ui, sans-serif; fill: #1f2328; }
  .title { font-size: 13px; font-weight: 600; }
  .note { fill: #59636e; font-size: 11px; }
  .ours { fill: #1a7f64; }
  .checks { fill: #57789c; }
  .passes { fill: #c5ced8; }
  .axis { stroke: #d1d9e0; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .note { fill: #9198a1; }
    .ours { fill: #3fb68f; }
    .checks { fill: #6b93bf; }
    .passes { fill: #3d4650; }
    .axis { stroke: #3d444d; }
  }
`;

interface Bar {
  label: string;
  kind: 'ours' | 'checks' | 'passes';
  perSecond: number;
}

/** The bars of a workload: first the contenders that check JSON, then the others. Each group begins with the fastest. */
function listBars({ rows }: Results['peers'], workload: string): Bar[] {
  const bars = CONTENDERS.flatMap(({ name, title, checksJson }): Bar[] => {
    const us = rows.find((row) => row.name === name)?.us[workload];
    if (!us || WITHOUT_BAR.includes(name)) return [];
    const kind = name === 'gateway' ? 'ours' : checksJson ? 'checks' : 'passes';
    return [{ label: title, kind, perSecond: 1e6 / us }];
  });
  const group = (bar: Bar): number => (bar.kind === 'passes' ? 1 : 0);
  return bars.sort((a, b) => group(a) - group(b) || b.perSecond - a.perSecond);
}

function formatRate(perSecond: number): string {
  return `${(perSecond / 1000).toFixed(perSecond < 10_000 ? 1 : 0)} k`;
}

function drawPanel(title: string, bars: Bar[], left: number, top: number): string {
  const longest = Math.max(1, ...bars.map((bar) => bar.perSecond));
  const room = PANEL_WIDTH - LABEL_WIDTH - VALUE_WIDTH;
  const axis = left + LABEL_WIDTH;
  const lines = bars.map((bar, index) => {
    const y = top + 24 + index * ROW_HEIGHT + (bar.kind === 'passes' ? 8 : 0);
    const width = Math.max(1, Math.round((bar.perSecond / longest) * room));
    return (
      `<text x="${axis - 8}" y="${y + 11}" text-anchor="end">${escapeText(bar.label)}</text>` +
      `<rect class="${bar.kind}" x="${axis}" y="${y}" width="${width}" height="14" rx="2"/>` +
      `<text x="${axis + width + 6}" y="${y + 11}">${formatRate(bar.perSecond)}</text>`
    );
  });
  const bottom = top + 24 + bars.length * ROW_HEIGHT + 6;
  return (
    `<text class="title" x="${left}" y="${top + 12}">${escapeText(title)}</text>` +
    `<line class="axis" x1="${axis}" y1="${top + 20}" x2="${axis}" y2="${bottom}"/>` +
    lines.join('')
  );
}

export function drawPicture(peers: Results['peers']): string {
  const panels = WORKLOADS.filter(({ name }) => PANELS.includes(name)).map(({ name, title }) => ({
    title,
    bars: listBars(peers, name),
  }));
  const rows = Math.max(1, ...panels.map(({ bars }) => bars.length));
  const panelHeight = rows * ROW_HEIGHT + 56;
  const height = 66 + Math.ceil(panels.length / 2) * panelHeight + 16;
  const note = `${peers.date} · ${peers.machine} · medians of ${peers.rounds} rounds · one core divided by the processor time of a request`;
  const legend = [
    ['ours', 'this gateway', 0],
    ['checks', 'checks JSON too', 110],
    ['passes', 'passes bytes unchecked', 240],
  ] as const;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="Requests a second on one core">`,
    `<style>${STYLE}</style>`,
    `<text class="title" x="16" y="24">Requests a second on one core (more is better)</text>`,
    ...legend.map(
      ([kind, text, x]) =>
        `<rect class="${kind}" x="${16 + x}" y="36" width="12" height="12" rx="2"/>` +
        `<text x="${34 + x}" y="46">${text}</text>`,
    ),
    ...panels.map(({ title, bars }, index) =>
      drawPanel(title, bars, 16 + (index % 2) * (PANEL_WIDTH + 28), 68 + Math.floor(index / 2) * panelHeight),
    ),
    `<text class="note" x="16" y="${height - 12}">${escapeText(note)}</text>`,
    '</svg>',
    '',
  ].join('\n');
}
