// The gateway's job written by hand on Hono and fetch, the usual way: parse, forward, parse, answer.
import { serve } from '@hono/node-server';
import { Hono } from 'hono';

const backend = `${process.env.BACKEND_URL}/api/WorkItem`;
const headers = { 'content-type': 'application/json' };
const app = new Hono();

const answering = (verb, act) => async (c) => {
  const text = c.req.param('id');
  const id = text === undefined ? undefined : Number.parseInt(text, 10);
  if (Number.isNaN(id)) return c.json({ error: 'Invalid ID format' }, 400);
  try {
    const answer = await act(c, `${backend}/${id}`);
    if (verb === 'fetch' && id !== undefined && answer.status === 404)
      return c.json({ error: 'Work item not found' }, 404);
    if (!answer.ok) throw new Error(String(answer.status));
    if (verb === 'update' || verb === 'delete') return c.json({ success: true });
    return c.json(await answer.json(), verb === 'create' ? 201 : 200);
  } catch {
    return c.json({ error: `Failed to ${verb} work item${verb === 'fetch' && id === undefined ? 's' : ''}` }, 500);
  }
};
const send = async (c, url, method) => fetch(url, { method, headers, body: JSON.stringify(await c.req.json()) });

app.get('/api/work-items', answering('fetch', () => fetch(backend, { headers }))); // prettier-ignore
app.post('/api/work-items', answering('create', (c) => send(c, backend, 'POST'))); // prettier-ignore
app.get('/api/work-items/:id', answering('fetch', (_, url) => fetch(url, { headers }))); // prettier-ignore
app.put('/api/work-items/:id', answering('update', (c, url) => send(c, url, 'PUT'))); // prettier-ignore
app.delete('/api/work-items/:id', answering('delete', (_, url) => fetch(url, { method: 'DELETE', headers }))); // prettier-ignore

serve({ fetch: app.fetch, port: Number(process.env.PORT), hostname: '127.0.0.1' });
