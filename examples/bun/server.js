import { createFetchHandler } from 'work-item-gateway/fetch';

const call = createFetchHandler({
  backendUrl: process.env.BACKEND_URL ?? 'http://localhost:5104',
  itemIdParsing: 'whole',
});

const server = Bun.serve({
  port: Number(process.env.PORT ?? 3000),
  // In seconds: longer than the backend timeout (30), because Bun's default (10) would cut calls to a slow backend.
  idleTimeout: 40,
  routes: { '/api/work-items': call, '/api/work-items/*': call },
  fetch: () => new Response('Work items are at /api/work-items'),
});
console.log(`http://localhost:${server.port}/api/work-items`);
