import { createFetchHandler } from 'work-item-gateway/fetch';

const call = createFetchHandler({
  backendUrl: Deno.env.get('BACKEND_URL') ?? 'http://localhost:5104',
  itemIdParsing: 'whole',
});

const ours = new URLPattern({ pathname: '/api/work-items{/*}?' });
const port = Number(Deno.env.get('PORT') ?? 3000);
Deno.serve({ port }, (request) =>
  ours.test(request.url) ? call(request) : new Response('Work items are at /api/work-items'),
);
