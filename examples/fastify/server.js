import cors from '@fastify/cors';
import jwt from '@fastify/jwt';
import rateLimit from '@fastify/rate-limit';
import swagger from '@fastify/swagger';
import Fastify from 'fastify';
import { frameworkErrors, workItemGateway } from 'work-item-gateway/fastify';

const { BACKEND_URL = 'http://localhost:5104', JWT_SECRET, ORIGIN, RATE_LIMIT = 100, PORT = 3000 } = process.env;
const app = Fastify({ logger: true, return503OnClosing: false, frameworkErrors });

await app.register(swagger, { openapi: { info: { title: 'Our site', version: '1.0.0' } } });
await app.register(cors, { origin: ORIGIN ?? false, methods: ['GET', 'POST', 'PUT', 'DELETE'] });
await app.register(rateLimit, { max: Number(RATE_LIMIT), timeWindow: '1 minute' });
await app.register(jwt, { secret: JWT_SECRET });

app.get('/openapi.json', { schema: { hide: true } }, () => app.swagger());
await app.register(async (scope) => {
  scope.addHook('onRequest', (request) => request.jwtVerify());
  await scope.register(workItemGateway, { backendUrl: BACKEND_URL, itemIdParsing: 'whole' });
});

await app.listen({ port: Number(PORT) });
process.once('SIGTERM', () => app.close());
