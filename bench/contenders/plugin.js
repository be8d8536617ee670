// The gateway as a plugin of a Fastify server, from the built package.
import Fastify from 'fastify';
import { workItemGateway } from '../../dist/core/hosts/index.js';

const server = Fastify();
await server.register(workItemGateway, { backendUrl: process.env.BACKEND_URL });
await server.listen({ port: Number(process.env.PORT), host: '127.0.0.1' });
