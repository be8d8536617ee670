// @fastify/http-proxy whose backend restarts, as the README of @fastify/reply-from recommends: `retriesCount` is "useful
// when keeping the connection open" and off by default; `retryMethods` keeps its default, which has no writes.
import proxy from '@fastify/http-proxy';
import Fastify from 'fastify';

const server = Fastify();
await server.register(proxy, {
  upstream: process.env['BACKEND_URL'] ?? '',
  prefix: '/api/work-items',
  rewritePrefix: '/api/WorkItem',
  replyOptions: { retriesCount: 2 },
});
await server.listen({ port: Number(process.env['PORT']), host: '127.0.0.1' });
