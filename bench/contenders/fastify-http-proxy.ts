// @fastify/http-proxy with its defaults: paths mapped, bodies streamed, nothing checked.
import proxy from '@fastify/http-proxy';
import Fastify from 'fastify';

const server = Fastify();
await server.register(proxy, {
  upstream: process.env['BACKEND_URL'] ?? '',
  prefix: '/api/work-items',
  rewritePrefix: '/api/WorkItem',
});
await server.listen({ port: Number(process.env['PORT']), host: '127.0.0.1' });
