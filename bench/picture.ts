// Draws the comparison: the requests per second that one core can serve. Each of four workloads has a panel with a bar per
// contender. The SVG has colours for light and dark, and real text for search and screen readers.
import type { Comparison } from './results.ts';

const PANELS = ['item', 'list100', 'put', 'post'];
const WIDTH = 880;
const PANEL_WIDTH = 410;
const LABEL_WIDTH = 168;
const VALUE_WIDTH = 52;
const ROW_HEIGHT = 19;

/** Short names, also in bench/comparison.md. */
export const LABELS: Record<string, string> = {
  gateway: 'Work Item Gateway',
  'nginx-lua': 'nginx + Lua',
  hono: 'Hono, fetch',
  next: 'Next.js handlers',
  'fastify-http-proxy': '@fastify/http-proxy',
  express: 'http-proxy-middleware',
  caddy: 'Caddy',
  nginx: 'nginx proxy_pass',
  haproxy: 'HAProxy',
  'node-http': 'node:http alone',
};

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

function escapeText(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}

interface Bar {
  label: string;
  kind: 'ours' | 'checks' | 'passes';
  perSecond: number;
}

/** The bars of a workload: contenders that check JSON first, fastest first in each group. */
function listBars(result: Comparison, workload: string): Bar[] {
  const bars = result.contenders.flatMap(({ name, checksJson }): Bar[] => {
    const us = result.throughput.find((row) => row.workload === workload && row.contender === name)
      ?.processorUs.median;
    const label = LABELS[name];
    if (!us || label === undefined) return [];
    return [
      { label, kind: name === 'gateway' ? 'ours' : checksJson ? 'checks' : 'passes', perSecond: 1e6 / us },
    ];
  });
  const group = (bar: Bar): number => (bar.kind === 'passes' ? 1 : 0);
  return bars.sort((a, b) => group(a) - group(b) || b.perSecond - a.perSecond);
}

function formatRate(perSecond: number): string {
  return perSecond < 10_000
    ? `${(perSecond / 1000).toFixed(1)} k`
    : `${String(Math.round(perSecond / 1000))} k`;
}

function drawPanel(title: string, bars: Bar[], left: number, top: number): string {
  const longest = Math.max(1, ...bars.map((bar) => bar.perSecond));
  const room = PANEL_WIDTH - LABEL_WIDTH - VALUE_WIDTH;
  const axis = left + LABEL_WIDTH;
  const lines = bars.map((bar, index) => {
    const y = top + 24 + index * ROW_HEIGHT + (bar.kind === 'passes' ? 8 : 0);
    const width = Math.max(1, Math.round((bar.perSecond / longest) * room));
    return (
      `<text x="${String(axis - 8)}" y="${String(y + 11)}" text-anchor="end">${escapeText(bar.label)}</text>` +
      `<rect class="${bar.kind}" x="${String(axis)}" y="${String(y)}" width="${String(width)}" height="14" rx="2"/>` +
      `<text x="${String(axis + width + 6)}" y="${String(y + 11)}">${formatRate(bar.perSecond)}</text>`
    );
  });
  const bottom = top + 24 + bars.length * ROW_HEIGHT + 6;
  return (
    `<text class="title" x="${String(left)}" y="${String(top + 12)}">${escapeText(title)}</text>` +
    `<line class="axis" x1="${String(axis)}" y1="${String(top + 20)}" x2="${String(axis)}" y2="${String(bottom)}"/>` +
    lines.join('')
  );
}

export function drawPicture(result: Comparison): string {
  const panels = PANELS.flatMap((name) => {
    const workload = result.workloads.find((one) => one.name === name);
    return workload ? [{ title: workload.title, bars: listBars(result, name) }] : [];
  });
  const rows = Math.max(1, ...panels.map(({ bars }) => bars.length));
  const panelHeight = rows * ROW_HEIGHT + 56;
  const height = 66 + Math.ceil(panels.length / 2) * panelHeight + 16;
  const { machine } = result;
  const note = `${result.date} · ${machine.processor} · Node ${machine.node} · medians of ${String(result.rounds)} rounds · one core divided by the processor time of a request`;
  const legend: [string, string, number][] = [
    ['ours', 'this gateway', 0],
    ['checks', 'checks JSON too', 110],
    ['passes', 'passes bytes unchecked', 240],
  ];
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${String(WIDTH)}" height="${String(height)}" viewBox="0 0 ${String(WIDTH)} ${String(height)}" role="img" aria-label="Requests a second on one core">`,
    `<style>${STYLE}</style>`,
    `<text class="title" x="16" y="24">Requests a second on one core (more is better)</text>`,
    ...legend.map(
      ([kind, text, x]) =>
        `<rect class="${kind}" x="${String(16 + x)}" y="36" width="12" height="12" rx="2"/>` +
        `<text x="${String(34 + x)}" y="46">${text}</text>`,
    ),
    ...panels.map(({ title, bars }, index) =>
      drawPanel(title, bars, 16 + (index % 2) * (PANEL_WIDTH + 28), 68 + Math.floor(index / 2) * panelHeight),
    ),
    `<text class="note" x="16" y="${String(height - 12)}">${escapeText(note)}</text>`,
    '</svg>',
    '',
  ].join('\n');
}
