// A lower bound for gateways on node:http: maps the path, checks nothing, and sends a small reply in one piece.
import { Agent, createServer, request } from 'node:http';

const port = Number(process.env.PORT);
const backend = new URL(process.env.BACKEND_URL);
const agent = new Agent({ keepAlive: true, maxSockets: 128 });
const SMALL_BYTES = 64 * 1024;

function relay(answer, response) {
  const length = Number(answer.headers['content-length'] ?? 0);
  const headers = { 'content-type': 'application/json', 'content-length': length };
  const status = answer.statusCode ?? 500;
  if (status === 204) {
    answer.resume();
    response.writeHead(204).end();
  } else if (length > SMALL_BYTES) {
    response.writeHead(status, headers);
    // Without this, a client that leaves would keep its connection to the backend busy for ever.
    response.on('close', () => answer.destroy());
    answer.pipe(response);
  } else {
    const chunks = [];
    answer.on('data', (chunk) => chunks.push(chunk));
    answer.on('end', () =>
      response.writeHead(status, headers).end(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks)),
    );
  }
}

createServer((incoming, response) => {
  const length = incoming.headers['content-length'];
  const outgoing = request({
    agent,
    host: backend.hostname,
    port: backend.port,
    method: incoming.method,
    path: (incoming.url ?? '').replace('/api/work-items', '/api/WorkItem'),
    headers: { 'content-type': 'application/json', ...(length === undefined ? {} : { 'content-length': length }) },
  });
  outgoing.on('response', (answer) => relay(answer, response));
  outgoing.on('error', () => response.writeHead(502).end());
  if (length === undefined) outgoing.end();
  else incoming.pipe(outgoing);
}).listen(port, '127.0.0.1', 1024);
