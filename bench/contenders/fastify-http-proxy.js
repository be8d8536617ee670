// @fastify/http-proxy with its defaults: it maps paths, streams bodies and checks nothing. The scenario `restart` sets
// `retriesCount` with RETRIES. The default is 0; the README of @fastify/reply-from calls `retriesCount` "useful when keeping the
// connection open". The default of `retryMethods` has no methods that write, so writes are not repeated.
import proxy from '@fastify/http-proxy';
import Fastify from 'fastify';

const server = Fastify();
await server.register(proxy, {
  upstream: process.env.BACKEND_URL,
  prefix: '/api/work-items',
  rewritePrefix: '/api/WorkItem',
  replyOptions: { retriesCount: Number(process.env.RETRIES ?? 0) },
});
await server.listen({ port: Number(process.env.PORT), host: '127.0.0.1' });
