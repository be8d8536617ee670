// Measures the memory of client connections: npm run memory [-- --connections 2000]. For each protocol, first compares the
// memory of mixed holdings with the sizing formula (docs/operating.md), then measures what each way to hold memory takes.
import { parseArgs } from 'node:util';
import type { Protocol } from '../test/transport/held-gateway.ts';
import { assertFits, HeldMemory, holdings, megabytes } from '../test/transport/held-memory.ts';

const { values } = parseArgs({ options: { connections: { type: 'string', default: '2000' } } });
const count = Number(values.connections);
for (const [protocol, kinds] of Object.entries(holdings) as [Protocol, (typeof holdings)['plain']][]) {
  console.log(`${protocol}, mixed, ${count} connections: ${await assertFits(protocol, count)}`);
  for (const [name, kind] of Object.entries(kinds)) {
    await using memory = await HeldMemory.start(protocol, { connectionsMax: count, bufferedBytesMax: 2 ** 32 });
    const before = await memory.settled();
    await memory.hold(count, [kind]);
    const { resident, counted } = await memory.settled();
    const each = (resident - before.resident) / count;
    console.log(`${protocol}, ${name}: ${kilobytes(each)} a connection, ${kilobytes(counted / count)} of it counted`);
  }
  const empty = await HeldMemory.start(protocol, { connectionsMax: count });
  console.log(`${protocol}, no connections: ${megabytes((await empty.settled()).resident)}`);
  await empty[Symbol.asyncDispose]();
}

function kilobytes(bytes: number): string {
  return `${(bytes / 1e3).toFixed(1)} KB`;
}
