// @fastify/http-proxy with its defaults: it maps paths, streams bodies and checks nothing.
import proxy from '@fastify/http-proxy';
import Fastify from 'fastify';

const server = Fastify();
await server.register(proxy, {
  upstream: process.env['BACKEND_URL'] ?? '',
  prefix: '/api/work-items',
  rewritePrefix: '/api/WorkItem',
});
await server.listen({ port: Number(process.env['PORT']), host: '127.0.0.1' });
