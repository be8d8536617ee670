// The picture of a fleet run: calls a second over time, lost calls and events. One SVG for light and dark.

export interface Mark {
  readonly atS: number;
  readonly text: string;
}

export interface Second {
  readonly served: number;
  readonly lost: number;
}

export interface Picture {
  readonly title: string;
  readonly note: string;
  readonly seconds: readonly Second[];
  readonly marks: readonly Mark[];
}

const style = `
  text { font: 12px system-ui, sans-serif; fill: #1f2328; }
  .title { font-size: 13px; font-weight: 600; }
  .note { fill: #59636e; font-size: 11px; }
  .served { fill: #1a7f64; fill-opacity: 0.25; stroke: #1a7f64; stroke-width: 1.5; }
  .lost { fill: #c0392b; }
  .axis { stroke: #d1d9e0; }
  .mark { stroke: #57789c; stroke-dasharray: 3 3; }
  .number { fill: #57789c; font-weight: 600; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .note { fill: #9198a1; }
    .served { fill: #3fb68f; stroke: #3fb68f; }
    .lost { fill: #ff7b6b; }
    .axis { stroke: #3d444d; }
    .mark { stroke: #6b93bf; }
    .number { fill: #8db3dd; }
  }
`;

const [width, left, right, top, bottom, rowHeight] = [880, 56, 864, 94, 304, 18];

const escapeText = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

export function drawPicture({ title, note, seconds, marks }: Picture): string {
  const highest = Math.max(1, ...seconds.map(({ served }) => served));
  const step = highest > 2_000 ? 1_000 : highest > 800 ? 500 : 100;
  const ceiling = Math.ceil(highest / step) * step;
  const x = (second: number): number => round(left + ((right - left) * second) / Math.max(1, seconds.length));
  const y = (calls: number): number => round(bottom - ((bottom - top) * calls) / ceiling);
  const outline = seconds.map(({ served }, index) => `${x(index + 0.5)},${y(served)}`).join(' ');
  const grid = Array.from({ length: ceiling / step + 1 }, (_, index) => index * step).flatMap((calls) => [
    `<line class="axis" x1="${left}" y1="${y(calls)}" x2="${right}" y2="${y(calls)}"/>`,
    textAt('note', left - 8, y(calls) + 4, 'end', String(calls)),
  ]);
  const lastS = seconds.length;
  const timeStep = lastS > 240 ? 60 : lastS > 120 ? 20 : 10;
  const times = Array.from({ length: Math.floor(lastS / timeStep) + 1 }, (_, index) => index * timeStep).map((second) =>
    textAt('note', x(second), bottom + 16, 'middle', `${second} s`),
  );
  // The height of a bar shows the number of lost calls. It is at least 4, so that the bar is visible.
  const lost = seconds.map(({ lost: count }, index) => {
    const height = count === 0 ? 0 : Math.max(4, bottom - y(count));
    return `<rect class="lost" x="${round(x(index + 0.5) - 2.5)}" y="${round(bottom - height)}" width="5" height="${round(height)}"/>`;
  });
  const rows = Math.ceil(marks.length / 2);
  const legendTop = bottom + 44;
  const numbered = marks.flatMap(({ atS, text }, index) => {
    // In three rows, so that the numbers of close marks do not overlap.
    const row = top - 8 - (index % 3) * 12;
    const column = 16 + Math.floor(index / rows) * 424;
    const line = legendTop + (index % rows) * rowHeight;
    return [
      `<line class="mark" x1="${x(atS)}" y1="${row + 4}" x2="${x(atS)}" y2="${bottom}"/>`,
      textAt('number', x(atS), row, 'middle', String(index + 1)),
      textAt('number', column + 16, line, 'end', String(index + 1)),
      textAt('', column + 26, line, 'start', escapeText(text)),
    ];
  });
  const height = legendTop + rows * rowHeight + 4;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeText(title)}">`,
    `<style>${style}</style>`,
    textAt('title', 16, 22, 'start', escapeText(title)),
    textAt('note', 16, 40, 'start', escapeText(note)),
    ...grid,
    ...times,
    `<polygon class="served" points="${x(0.5)},${bottom} ${outline} ${x(lastS - 0.5)},${bottom}"/>`,
    ...lost,
    ...numbered,
    '</svg>\n',
  ].join('\n');
}

function textAt(kind: string, x: number, y: number, anchor: 'start' | 'middle' | 'end', text: string): string {
  return `<text class="${kind}" x="${x}" y="${y}" text-anchor="${anchor}">${text}</text>`;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
