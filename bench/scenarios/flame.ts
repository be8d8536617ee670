// Draws a flame graph of the CPU time of a GET of one item in docs/images/flame-graph.svg. Runs the built command with --cpu-prof
// under load and draws the frames, widest first, without those below 0.3 %.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { Scenario } from '../bench.ts';
import { escapeText } from '../tables.ts';
import { ITEM_WORKLOAD } from '../workloads.ts';

interface ProfileNode {
  id: number;
  callFrame: { functionName: string; url: string; lineNumber: number };
  children?: number[];
}

interface Profile {
  nodes: ProfileNode[];
  samples: number[];
  timeDeltas: number[];
}

/** The sum of all stack frames with this name under the same parent. */
interface Frame {
  name: string;
  owner: keyof typeof OWNERS;
  us: number;
  below: Map<string, Frame>;
}

const OWNERS = {
  gateway: 'the gateway',
  node: 'Node: sockets, HTTP, timers',
  wasm: 'WebAssembly: JSON check',
  system: 'writes to sockets, with the system call',
  other: 'V8 and the event loop: reads, polling, garbage collection',
};
const WARMUP_MS = 3_000;
const WIDTH = 1_100;
const ROW = 17;
const LEAST_SHARE = 0.003;
const FILE = join(import.meta.dirname, '../../docs/images/flame-graph.svg');

const STYLE = `
  text { font: 11px ui-monospace, monospace; fill: #1f2328; pointer-events: none; }
  .note { font: 12px system-ui, sans-serif; }
  rect { stroke: #ffffff; stroke-width: .5; }
  .gateway { fill: #7cc4ae; } .node { fill: #a9bdd3; } .wasm { fill: #c9a7d8; }
  .system { fill: #e59a8c; } .other { fill: #d1d9e0; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } rect { stroke: #0d1117; }
    .gateway { fill: #1f7a60; } .node { fill: #3d5671; } .wasm { fill: #694a7a; }
    .system { fill: #8c4438; } .other { fill: #3d444d; }
  }
`;

function ownerOf({ functionName, url }: ProfileNode['callFrame']): Frame['owner'] {
  if (/^(?:write(?:v|Latin1String|Buffer|Utf8String))$/.test(functionName) && url === '') return 'system';
  if (url.startsWith('wasm') || functionName.startsWith('wasm')) return 'wasm';
  if (url.startsWith('node:')) return 'node';
  return url.startsWith('file:') ? 'gateway' : 'other';
}

function makeTree({ nodes, samples, timeDeltas }: Profile): Frame {
  const own = new Map<number, number>();
  for (const [index, id] of samples.entries()) own.set(id, (own.get(id) ?? 0) + (timeDeltas[index] ?? 0));
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const root: Frame = { name: 'all', owner: 'other', us: 0, below: new Map() };
  const add = (node: ProfileNode, parent: Frame): number => {
    const { functionName, url } = node.callFrame;
    if (functionName === '(idle)') return 0;
    const where = url === '' ? '' : ` ${basename(url)}`;
    const name = `${functionName === '' ? '(anonymous)' : functionName}${where}`;
    let frame = parent;
    if (functionName !== '(root)') {
      frame = parent.below.get(name) ?? { name, owner: ownerOf(node.callFrame), us: 0, below: new Map() };
      parent.below.set(name, frame);
    }
    let us = own.get(node.id) ?? 0;
    for (const id of node.children ?? []) {
      const child = byId.get(id);
      if (child) us += add(child, frame);
    }
    if (frame !== parent) frame.us += us;
    return us;
  };
  const [first] = nodes;
  if (first) root.us = add(first, root);
  return root;
}

function draw(root: Frame, title: string): string {
  const boxes: string[] = [];
  let depth = 0;
  const put = (frame: Frame, x: number, level: number): void => {
    const width = (frame.us / root.us) * WIDTH;
    depth = Math.max(depth, level);
    const y = 60 + level * ROW;
    const share = ((frame.us / root.us) * 100).toFixed(1);
    const room = Math.floor(width / 6.8) - 1;
    const label = frame.name.length <= room ? frame.name : room > 4 ? `${frame.name.slice(0, room - 1)}…` : '';
    boxes.push(
      `<g><title>${escapeText(frame.name)}: ${share} %</title>` +
        `<rect class="${frame.owner}" x="${x.toFixed(1)}" y="${y}" width="${width.toFixed(1)}" height="${ROW - 1}"/>` +
        (label === '' ? '' : `<text x="${(x + 3).toFixed(1)}" y="${y + 12}">${escapeText(label)}</text>`) +
        '</g>',
    );
    let left = x;
    for (const child of [...frame.below.values()].sort((a, b) => b.us - a.us)) {
      if (child.us / root.us < LEAST_SHARE) continue;
      put(child, left, level + 1);
      left += (child.us / root.us) * WIDTH;
    }
  };
  put(root, 0, 0);
  let left = 0;
  const legend = (Object.entries(OWNERS) as [Frame['owner'], string][]).map(([owner, label]) => {
    const item = `<rect class="${owner}" x="${left}" y="28" width="12" height="12"/><text class="note" x="${left + 17}" y="38">${label}</text>`;
    left += 34 + label.length * 6.2;
    return item;
  });
  const height = 60 + (depth + 1) * ROW + 4;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${escapeText(title)}">`,
    `<style>${STYLE}</style>`,
    `<text class="note" x="0" y="14">${escapeText(title)}</text>`,
    ...legend,
    ...boxes,
    '</svg>',
    '',
  ].join('\n');
}

function sumOwners(root: Frame): Map<Frame['owner'], number> {
  const sums = new Map<Frame['owner'], number>();
  const walk = (frame: Frame): void => {
    let own = frame.us;
    for (const child of frame.below.values()) {
      own -= child.us;
      walk(child);
    }
    sums.set(frame.owner, (sums.get(frame.owner) ?? 0) + own / root.us);
  };
  walk(root);
  return sums;
}

export const scenario: Scenario = {
  title: 'draws a flame graph of reads of an item',
  rounds: 1,
  seconds: 6,
  minutes: 0.5,
  isApart: true,
  run: async (bench) => {
    const folder = join(bench.folder, 'profile');
    const one = await bench.start('gateway', { nodeArgs: ['--cpu-prof', `--cpu-prof-dir=${folder}`] });
    const warmup = { warmupMs: WARMUP_MS, warmupRequests: 0 };
    const { us } = await bench.load({ one, workload: ITEM_WORKLOAD }, warmup);
    await one.stop();
    const [name = ''] = readdirSync(folder);
    const root = makeTree(JSON.parse(readFileSync(join(folder, name), 'utf8')) as Profile);
    const title = `GET of an item, processor time of the gateway: 100 % is ${us.toFixed(0)} µs a request (Node ${process.versions.node}, sampled while it ran)`;
    writeFileSync(FILE, draw(root, title));
    const shares = [...sumOwners(root)].sort((a, b) => b[1] - a[1]);
    bench.print(
      FILE,
      ['', '%'],
      shares.map(([owner, share]) => [OWNERS[owner], (share * 100).toFixed(1)]),
    );
    return undefined;
  },
};
