import express from 'express';
import { createNodeHandler } from 'work-item-gateway/node';

const call = createNodeHandler({
  backendUrl: process.env.BACKEND_URL ?? 'http://localhost:5104',
  itemIdParsing: 'whole',
});

const app = express();
app.disable('x-powered-by');
// The gateway must come before any middleware that reads bodies.
app.use(call);
app.use(express.json());
app.get('/', (request, response) => response.send('Work items are at /api/work-items'));

const server = app.listen(Number(process.env.PORT ?? 3000), () => {
  console.log(`http://localhost:${server.address().port}/api/work-items`);
});
process.once('SIGTERM', () => {
  server.close(() => call.close());
  // Otherwise Node would wait without limit for a client that has sent only a part of a request.
  setTimeout(() => server.closeAllConnections(), 10_000).unref();
});
