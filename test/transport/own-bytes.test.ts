// No client gets bytes of another client's item, whatever host serves it, however large the answer is, and however the
// client reads. test/examples/runtimes.test.ts does the same on Bun and Deno.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { constants } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import fastifyCompress from '@fastify/compress';
import { serve } from '@hono/node-server';
import compression from 'compression';
import express, { type RequestHandler } from 'express';
import { Hono, type MiddlewareHandler } from 'hono';
import { compress } from 'hono/compress';
import { createFetchHandler, type FetchHandler } from '../../packages/core/hosts/fetch/fetch.ts';
import { workItemGateway } from '../../packages/core/hosts/index.ts';
import { Fastify } from '../helpers/fastify.ts';
import { startGateway } from '../helpers/gateway.ts';
import { noHttp2 } from '../helpers/http2-client.ts';
import { answerSizes, OwnBytes } from '../helpers/own-bytes.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { answerBytes, ScriptedBackend } from '../helpers/scripted-backend.ts';

type Serve = (handler: FetchHandler) => Promise<{ readonly port: number; readonly close: () => void }>;

/** Starts a server of its own for the fetch handler. */
async function startFetch(listen: Serve) {
  const backend = await ScriptedBackend.start();
  const handler = createFetchHandler({ backendUrl: backend.url });
  const { port, close } = await listen(handler);
  const dispose = async () => {
    close();
    await handler.close();
    await backend.stop();
  };
  return { backend, connect: () => RawClient.open(port), [Symbol.asyncDispose]: dispose };
}

const withHono =
  (...middleware: MiddlewareHandler[]): Serve =>
  (handler) =>
    new Promise((resolve) => {
      const app = new Hono();
      for (const each of middleware) app.use(each);
      app.all('*', ({ req }) => handler(req.raw));
      const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) =>
        resolve({ port, close: () => server.close() }),
      );
    });

/** Node's own `Request` and `Response`, as other adapters use them. */
const withNode: Serve = async (handler) => {
  const server = createServer((request, response) => {
    void handler(new Request(`http://localhost${request.url ?? ''}`)).then((answer) => {
      response.writeHead(answer.status, [...answer.headers].flat());
      if (answer.body !== null) Readable.fromWeb(answer.body).pipe(response);
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return { port: (server.address() as AddressInfo).port, close: () => server.close() };
};

const gzip = [['Accept-Encoding', 'gzip']] as const;

const compressed = () => express().use(compression({ threshold: 0 }));
const withChunks: RequestHandler = (_request, response, next) => {
  response.setHeader('Transfer-Encoding', 'chunked');
  next();
};
const startExpress = (...middleware: RequestHandler[]) =>
  startGateway({ host: 'node', mount: (handler) => compressed().use(...middleware, handler) as never });

const startCompressedFastify = () => {
  const app = Fastify();
  const register = async (backendUrl: string) => {
    await app.register(fastifyCompress, { threshold: 0 });
    await app.register(workItemGateway, { backendUrl });
  };
  return startGateway({ host: 'plugin', app, register });
};

const hosts = {
  'own HTTP/1.1': { start: () => startGateway({ host: 'http1' }), sizes: answerSizes },
  'own HTTP/2': { start: () => startGateway({ host: 'http2' }), isHttp2: true },
  'node:http': { start: () => startGateway({ host: 'node' }) },
  'Express with compression': { start: () => startExpress(), headers: gzip },
  'Express with compression, after middleware that chunks': { start: () => startExpress(withChunks), headers: gzip },
  Fastify: { start: () => startGateway({ host: 'plugin' }) },
  'Fastify with @fastify/compress': { start: startCompressedFastify, headers: gzip },
  'the fetch handler on Node': { start: () => startFetch(withNode) },
  Hono: { start: () => startFetch(withHono()) },
  'Hono with compress': { start: () => startFetch(withHono(compress({ threshold: 0 }))), headers: gzip },
} as const;

for (const [name, { start, ...traits }] of Object.entries(hosts)) {
  const isHttp2 = 'isHttp2' in traits;
  test(`${name}: each client gets its own bytes, however it reads`, { skip: isHttp2 ? noHttp2 : false }, async () => {
    await using gateway = await start();
    for (const size of 'sizes' in traits ? traits.sizes : [64, 65_537, 2_500_000]) {
      const calls = new OwnBytes(size, {
        backend: gateway.backend,
        open: () => gateway.connect(),
        openRaw: isHttp2 ? undefined : () => gateway.connect() as Promise<RawClient>,
        headers: 'headers' in traits ? traits.headers : [],
      });
      await calls.all();
    }
  });
}

test(
  'own HTTP/2: streams that stop reading get their own bytes while others are reset',
  { skip: noHttp2 },
  async () => {
    await using gateway = await startGateway({ host: 'http2' });
    const list = (letter: string): Buffer => Buffer.from(`"${letter.repeat(300_000)}"`);
    gateway.backend.answers(async (exchange) => {
      await exchange.write(answerBytes(list(exchange.request.header('x-request-id') ?? '')));
    });
    await using client = await gateway.connect();
    const begin = (letter: string) => {
      const begun = client.begin('GET', '/api/work-items', { headers: [['x-request-id', letter]] });
      begun.stream.end();
      return begun;
    };
    const stopped = ['a', 'b', 'c', 'd'].map((letter) => ({ letter, ...begin(letter) }));
    for (const { stream } of stopped) {
      stream.pause();
      await once(stream, 'response');
    }
    for (let round = 0; round < 5; round += 1) {
      const leaving = begin('x');
      await once(leaving.stream, 'response');
      leaving.stream.close(constants.NGHTTP2_CANCEL);
      for (const letter of ['y', 'z']) assert.ok((await begin(letter).reply).body.equals(list(letter)));
    }
    for (const { letter, stream, reply } of stopped) {
      stream.resume();
      assert.ok((await reply).body.equals(list(letter)), letter);
    }
  },
);
