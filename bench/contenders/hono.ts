// The gateway's job written by hand on Hono and fetch, the usual way: parse, forward, parse, answer.
import { serve } from '@hono/node-server';
import { Hono } from 'hono';

const backend = `${process.env['BACKEND_URL'] ?? ''}/api/WorkItem`;
const headers = { 'content-type': 'application/json' };
const app = new Hono();

app.get('/api/work-items', async (c) => {
  try {
    const answer = await fetch(backend, { headers });
    if (!answer.ok) throw new Error(String(answer.status));
    return c.json(await answer.json());
  } catch {
    return c.json({ error: 'Failed to fetch work items' }, 500);
  }
});

app.post('/api/work-items', async (c) => {
  try {
    const body = JSON.stringify(await c.req.json());
    const answer = await fetch(backend, { method: 'POST', headers, body });
    if (!answer.ok) throw new Error(String(answer.status));
    return c.json(await answer.json(), 201);
  } catch {
    return c.json({ error: 'Failed to create work item' }, 500);
  }
});

app.get('/api/work-items/:id', async (c) => {
  const id = Number.parseInt(c.req.param('id'), 10);
  if (Number.isNaN(id)) return c.json({ error: 'Invalid ID format' }, 400);
  try {
    const answer = await fetch(`${backend}/${String(id)}`, { headers });
    if (answer.status === 404) return c.json({ error: 'Work item not found' }, 404);
    if (!answer.ok) throw new Error(String(answer.status));
    return c.json(await answer.json());
  } catch {
    return c.json({ error: 'Failed to fetch work item' }, 500);
  }
});

app.put('/api/work-items/:id', async (c) => {
  const id = Number.parseInt(c.req.param('id'), 10);
  if (Number.isNaN(id)) return c.json({ error: 'Invalid ID format' }, 400);
  try {
    const body = JSON.stringify(await c.req.json());
    const answer = await fetch(`${backend}/${String(id)}`, { method: 'PUT', headers, body });
    if (!answer.ok) throw new Error(String(answer.status));
    return c.json({ success: true });
  } catch {
    return c.json({ error: 'Failed to update work item' }, 500);
  }
});

app.delete('/api/work-items/:id', async (c) => {
  const id = Number.parseInt(c.req.param('id'), 10);
  if (Number.isNaN(id)) return c.json({ error: 'Invalid ID format' }, 400);
  try {
    const answer = await fetch(`${backend}/${String(id)}`, { method: 'DELETE', headers });
    if (!answer.ok) throw new Error(String(answer.status));
    return c.json({ success: true });
  } catch {
    return c.json({ error: 'Failed to delete work item' }, 500);
  }
});

serve({ fetch: app.fetch, port: Number(process.env['PORT']), hostname: '127.0.0.1' });
