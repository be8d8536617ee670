// Accepted ids, and the id in the backend's path for each [spec 4, rules 1 and 2; D1 to D3].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { assertReply, invalidId } from '../helpers/expected.ts';
import { forEachTarget } from '../helpers/targets.ts';

const digits30 = '123456789012345678901234567890';
const digits200 = '9'.repeat(200);
const digits5000 = `1${'0'.repeat(4999)}`;

/** The segment as sent, and the id in the backend's path. */
const accepted: [segment: string, id: string][] = [
  ['12', '12'], ['7', '7'], ['0', '0'], ['007', '7'], ['000', '0'], ['+5', '5'], ['+007', '7'],
  ['-3', '-3'], ['-007', '-7'], ['-0', '0'], ['+0', '0'], ['-000', '0'], ['12abc', '12'], ['7abc', '7'],
  ['7..', '7'], ['12.9', '12'], ['12.', '12'], ['1,000', '1'], ['1_000', '1'], ['0x1F', '0'],
  ['0b11', '0'], ['0o17', '0'], ['1e3', '1'], ['-0x1', '0'], ['5-3', '5'], ['5+3', '5'],
  ['12;version=1', '12'], ['12:done', '12'], ['12@home', '12'], ["12!$&'()*+,;=", '12'], ['12n', '12'],
  ['%31%32', '12'], ['%2B5', '5'], ['%2b5', '5'], ['%2D5', '-5'], ['%2012', '12'],
  ['%20%09%0D%0A12', '12'], ['%0B%0C12', '12'], ['%20-3%20', '-3'], ['12%20', '12'], ['12%2013', '12'],
  ['%C2%A012', '12'], ['%c2%a0-12', '-12'], ['%E2%80%A812', '12'], ['%E2%80%A912', '12'],
  ['%E3%80%8012', '12'], ['%E1%9A%8012', '12'], ['%E2%80%8012', '12'], ['%EF%BB%BF12', '12'],
  ['12%2F13', '12'], ['12%2F..%2F13', '12'], ['12%00', '12'], ['12%3F', '12'], ['12%23', '12'],
  ['12%25', '12'], ['12%0D%0AX-Injected:%201', '12'], ['12%F0%9F%92%A9', '12'], ['12%D9%A3', '12'],
  ['9007199254740991', '9007199254740991'], ['9007199254740993', '9007199254740993'],
  ['-9007199254740993', '-9007199254740993'], ['2147483648', '2147483648'],
  ['18446744073709551616', '18446744073709551616'], ['1000000000000000000000', '1000000000000000000000'],
  [digits30, digits30], [`-000${digits30}.5`, `-${digits30}`], [digits200, digits200],
  [`0000${digits200}`, digits200], [digits5000, digits5000],
]; // prettier-ignore

const refused = [
  'abc', 'abc12', '-', '+', '--1', '++1', '+-1', '-+1', '-%201', '+%201', '-%20%201', '.5', '-.5', ',1',
  '_1', 'x1F', 'NaN', 'Infinity', '-Infinity', 'null', 'undefined', '%20', '%20%20', '%00', '%0012',
  '%2512', '%252012', '%2F12', '..', '.', '%2E%2E', '%22%3112%22', '(12)', '$12', '%2312', '%D9%A1%D9%A2',
  '%EF%BC%91', '%E2%88%9212', '%E1%A0%8E12', '%E2%80%8B12', '%C2%8512', '12%', '12%2', '12%zz', '%zz', '%',
  '%%31', '12%ff', '%ff12', '12%C3', '12%C0%B1', '%C0%B1', '12%E2%82', '12%ED%A0%80', '12%F4%90%80%80',
  '12%80', '%u0031', '12%u0031',
]; // prettier-ignore

const wholeIds: [segment: string, id: string][] = [
  ['12', '12'], ['007', '7'], ['+5', '5'], ['%2B5', '5'], ['-0', '0'], ['-3', '-3'],
  ['%31%32', '12'], ['9007199254740993', '9007199254740993'], [digits30, digits30],
  [digits200, digits200],
]; // prettier-ignore
const refusedAsWhole = [
  '12abc', '7abc', '%2012', '12%20', '%C2%A012', '%EF%BB%BF12', '12%0A', '0x1F', '1e3', '12.0',
  '12%2F', '12%00', '12;v=1', '--1', '+', 'abc', '', '12%ff', '12%', '%zz',
]; // prettier-ignore

const methods = [['GET', {}], ['PUT', { body: '{}' }], ['DELETE', {}]] as const; // prettier-ignore
const shorten = (text: string) => (text.length > 40 ? `${text.slice(0, 12)}... (${text.length} characters)` : text);

for (const [itemIdParsing, ids, others] of [
  ['leading', accepted, refused],
  ['whole', wholeIds, refusedAsWhole],
] as const) {
  describe(`ITEM_ID_PARSING=${itemIdParsing}`, () => {
    forEachTarget(
      (target) => {
        for (const [segment, id] of ids) {
          test(`the segment ${shorten(segment)} is the integer ${shorten(id)} [spec 4, rules 1 and 2; D1 to D3]`, async () => {
            for (const [method, options] of methods) {
              const reply = await target().call(method, `/api/work-items/${segment}`, options);
              assert.equal(reply.status, 200, `${method}: ${reply.text}`);
              const call = await target().backend.nextRequest();
              assert.equal(`${call.method} ${call.target}`, `${method} /api/WorkItem/${id}`);
            }
          });
        }

        test('a segment that is not an integer is 400, and the backend is not called [spec 4, rule 1; D1, D3]', async () => {
          await target().withoutBackendCall(async () => {
            for (const segment of others) {
              // The URL parser of a `Request` removes dot segments.
              if (target().kind === 'fetch' && /^(?:\.|%2e){2}$/i.test(segment)) continue;
              for (const [method, options] of methods) {
                assertReply(await target().call(method, `/api/work-items/${segment}`, options), 400, invalidId);
              }
            }
          });
        });
      },
      { itemIdParsing },
      { kinds: ['in-process', 'fetch', 'http2'] },
    );
  });
}
