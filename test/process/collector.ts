// An OpenTelemetry collector: receives traces over OTLP/HTTP and decodes them.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';
import { poll } from '../helpers/changes.ts';

type ReceivedSpan = ReturnType<typeof decodeSpan>;
type Attributes = Readonly<Record<string, string | number | boolean>>;

export class Collector implements AsyncDisposable {
  readonly spans: ReceivedSpan[] = [];
  /** The bodies of the requests, not decoded. */
  readonly bodies: Buffer[] = [];
  readonly headers: IncomingHttpHeaders[] = [];
  /** The path for spans. */
  path = '/v1/traces';
  reply = (response: ServerResponse): unknown =>
    response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end();
  readonly url: string;
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    server.on('request', (request, response) => {
      void buffer(request).then((sent) => {
        assert.equal(request.url, this.path);
        assert.equal(request.headers['content-type'], 'application/x-protobuf');
        const body = request.headers['content-encoding'] === 'gzip' ? gunzipSync(sent) : sent;
        this.bodies.push(body);
        this.headers.push(request.headers);
        this.spans.push(...decodeSpans(body));
        this.reply(response);
      });
    });
  }

  static async start(): Promise<Collector> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new Collector(server);
  }

  /** Waits for the server span and the client span of the request with this id. */
  async pair(requestId: string): Promise<{ server: ReceivedSpan; client: ReceivedSpan }> {
    const find = () => {
      const server = this.spans.find((each) => each.attributes['work_item_gateway.request_id'] === requestId);
      const client = this.spans.find((each) => each.parentSpanId === server?.spanId);
      return server && client && { server, client };
    };
    await poll(() => find() !== undefined, `both spans of ${requestId}`);
    return find() ?? assert.fail();
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

// The field numbers are those of opentelemetry/proto/trace/v1/trace.proto.
function decodeSpans(body: Buffer) {
  return bytesIn(readMessage(body), 1).flatMap((resourceSpans) => {
    const message = readMessage(resourceSpans);
    const resource = attributesIn(bytesIn(message, 1).flatMap(readMessage), 1);
    const spans = bytesIn(message, 2).flatMap((scopeSpans) => bytesIn(readMessage(scopeSpans), 2));
    return spans.map((span) => decodeSpan(readMessage(span), resource));
  });
}

function decodeSpan(fields: readonly WireField[], resource: Attributes) {
  const text = (number: number, encoding: 'hex' | 'utf8'): string =>
    bytesIn(fields, number)[0]?.toString(encoding) ?? '';
  const kind = Number(numberIn(fields, 6));
  const code = Number(numberIn(bytesIn(fields, 15).flatMap(readMessage), 3));
  return {
    traceId: text(1, 'hex'),
    spanId: text(2, 'hex'),
    traceState: text(3, 'utf8'),
    /** Empty for a root span. */
    parentSpanId: text(4, 'hex'),
    name: text(5, 'utf8'),
    kind: kind === 2 ? 'server' : kind === 3 ? 'client' : kind,
    /** In nanoseconds since 1970. */
    start: numberIn(fields, 7),
    end: numberIn(fields, 8),
    attributes: attributesIn(fields, 9),
    status: code === 0 ? 'unset' : code === 2 ? 'error' : code,
    resource,
  };
}

function attributesIn(fields: readonly WireField[], number: number): Attributes {
  return Object.fromEntries(
    bytesIn(fields, number).map((keyValue) => {
      const [key, value] = [1, 2].map((each) => bytesIn(readMessage(keyValue), each)[0]);
      const [any] = readMessage(value ?? Buffer.alloc(0));
      assert.ok(key !== undefined && any !== undefined, 'an attribute has a key and a value');
      const plain =
        typeof any.value !== 'bigint'
          ? any.value.toString('utf8')
          : any.number === 2
            ? any.value === 1n
            : Number(any.value);
      return [key.toString('utf8'), plain];
    }),
  );
}

// A field of a protobuf message.
interface WireField {
  readonly number: number;
  /** A number (varint, fixed32, fixed64) or bytes. */
  readonly value: bigint | Buffer;
}

/** The fields of a message; throws if the bytes are not a message. */
function readMessage(bytes: Buffer): WireField[] {
  const fields: WireField[] = [];
  let at = 0;
  const readVarint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at];
      if (byte === undefined || shift > 63n) throw new Error('a number without an end');
      at += 1;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  const take = (length: number): Buffer => {
    if (at + length > bytes.length) throw new Error('a field longer than its message');
    at += length;
    return bytes.subarray(at - length, at);
  };
  // By wire type: varint, fixed64, bytes, fixed32.
  const readers: Readonly<Record<number, () => bigint | Buffer>> = {
    0: readVarint,
    1: () => take(8).readBigUInt64LE(),
    2: () => take(Number(readVarint())),
    5: () => BigInt(take(4).readUInt32LE()),
  };
  while (at < bytes.length) {
    const key = readVarint();
    const read = readers[Number(key & 7n)];
    if (read === undefined) throw new Error(`unknown wire type ${key & 7n}`);
    fields.push({ number: Number(key >> 3n), value: read() });
  }
  return fields;
}

/** All values of a field that is a message, a string or bytes. */
function bytesIn(fields: readonly WireField[], number: number): Buffer[] {
  return fields.flatMap((field) => (field.number === number && typeof field.value !== 'bigint' ? [field.value] : []));
}

/** The value of a number field; 0, protobuf's default, if it is missing. */
function numberIn(fields: readonly WireField[], number: number): bigint {
  const value = fields.findLast((field) => field.number === number)?.value ?? 0n;
  if (typeof value !== 'bigint') throw new Error(`field ${number} is not a number`);
  return value;
}
