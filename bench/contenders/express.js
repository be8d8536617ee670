// http-proxy-middleware on Express. Keep-alive to the backend is on here, but off by default.
import { Agent } from 'node:http';
import express from 'express';
import { createProxyMiddleware } from 'http-proxy-middleware';

const app = express();
app.disable('x-powered-by');
app.use(
  createProxyMiddleware({
    target: process.env.BACKEND_URL,
    agent: new Agent({ keepAlive: true, maxSockets: 128 }),
    pathFilter: '/api/work-items',
    pathRewrite: { '^/api/work-items': '/api/WorkItem' },
  }),
);
app.listen(Number(process.env.PORT), '127.0.0.1');
