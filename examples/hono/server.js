import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import { createFetchHandler } from 'work-item-gateway/fetch';

const call = createFetchHandler({
  backendUrl: process.env.BACKEND_URL ?? 'http://localhost:5104',
  itemIdParsing: 'whole',
});

const app = new Hono();
app.get('/', (context) => context.text('Work items are at /api/work-items'));
app.all('/api/work-items/*', (context) => call(context.req.raw).then((made) => context.newResponse(made.body, made)));

const port = Number(process.env.PORT ?? 3000);
serve({ fetch: app.fetch, port }, (address) => {
  console.log(`http://localhost:${address.port}/api/work-items`);
});
