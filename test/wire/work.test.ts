// The work of a reader grows linearly with the bytes of a message, in one piece and byte by byte [D58].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { byteByByte, readAnswers, readRequests } from './http-readings.ts';

const bytesOf = (text: string): Buffer => Buffer.from(text, 'latin1');

/** The least processor time of five reads, in ms. Other processes hardly change it. */
function msOf(read: () => void): number {
  const times = Array.from({ length: 5 }, () => {
    const before = process.cpuUsage();
    read();
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1_000;
  });
  return Math.min(...times);
}

const start = 'GET / HTTP/1.1\r\nHost: x\r\n';
// prettier-ignore
for (const [what, role, create] of [
  ['a long field', 'requests', (length: number) => `${start}A: ${'b'.repeat(length)}\r\n\r\n`],
  ['many fields', 'requests', (length: number) => `${start}${'a: b\r\n'.repeat(length / 6)}\r\n`],
  ['a long target', 'requests', (length: number) => `GET /${'a'.repeat(length)} HTTP/1.1\r\nHost: x\r\n\r\n`],
  ['a field of spaces', 'requests', (length: number) => `${start}A:${' '.repeat(length)}\r\n\r\n`],
  ['a value with spaces in it', 'requests', (length: number) => `${start}Origin: a${' '.repeat(length)}b\r\n\r\n`],
  ['a connection field of spaces', 'requests', (length: number) => `${start}Connection: a${' '.repeat(length)}b\r\n\r\n`],
  ['a connection field of commas', 'requests', (length: number) => `${start}Connection: ${', '.repeat(length / 2)}\r\n\r\n`],
  ['a content-length of zeros', 'requests', (length: number) => `${start}Content-Length: ${'0'.repeat(length)}x\r\n\r\n`],
  ['a long host', 'requests', (length: number) => `GET / HTTP/1.0\r\nHost: ${'%41'.repeat(length / 3)}"\r\n\r\n`],
  ['a keep-alive field of many timeouts', 'answers', (length: number) => `HTTP/1.1 200 OK\r\nKeep-Alive: ${' timeout '.repeat(length / 9)}\r\n\r\n`],
  ['empty lines', 'requests', (length: number) => '\r\n'.repeat(length / 2)],
  ['small chunks', 'requests', (length: number) => `PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n${'1\r\na\r\n'.repeat(length / 6)}`],
  ['interim answers', 'answers', (length: number) => 'HTTP/1.1 100 C\r\n\r\n'.repeat(length / 18)],
] as const) {
  // prettier-ignore
  test(`eight times the bytes take eight times the work: ${what}`, () => {
    const read = role === 'requests' ? readRequests : readAnswers;
    for (const cut of [byteByByte, (bytes: Buffer) => [Buffer.from(bytes)]]) {
      const isLinear = (): boolean => {
        const [small, large] = [6_000, 48_000].map((length) => {
          const bytes = bytesOf(create(length));
          return msOf(() => read(cut(bytes), { headBytesMax: 1_000_000 }));
        }) as [number, number];
        // Quadratic work takes 64 times as long.
        return large < 24 * (small + 0.5);
      };
      // Unoptimized code and garbage collections slow some attempts: one fast attempt is enough.
      assert.ok(Array.from({ length: 8 }, () => isLinear).some((again) => again()));
    }
  });
}
