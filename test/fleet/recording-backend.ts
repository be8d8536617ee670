// A backend process for tests, which kill and restart it. Before it answers a request, it appends the method and the request id
// to a file, which outlives the process. Arguments: port, file, delay of an answer in ms, address. SIGTERM stops it
// gracefully; SIGUSR2 closes idle connections. An `Answers` message from the parent process sets how requests are answered. The
// backend sends a message to the parent for each answer that it withholds.

import { openSync, writeSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { Server, type Socket } from 'node:net';
import type { Answers } from './restarting-backend.ts';

const [port = '0', file = '', answerMs = '0', address = '127.0.0.1'] = process.argv.slice(2);
const record = openSync(file, 'a');
const slowMs = 500;
let isStopping = false;
let answers: Answers = 'given';
const held: (() => void)[] = [];
// Connections that have served a request and are idle. A connection without a first request is not included: its
// first request may be on its way, and a client could not safely repeat that request.
const idle = new Set<Socket>();
const newest = new WeakMap<Socket, ServerResponse>();

const server = createServer({ keepAliveTimeout: 72_000, noDelay: true }, (request, response) => {
  const { method, socket } = request;
  const isUsed = newest.has(socket);
  idle.delete(socket);
  newest.set(socket, response);
  const marker = String(request.headers['x-request-id']);
  // A single write, so that the line is complete even if the process is killed directly afterwards.
  writeSync(record, `${String(method)} ${marker}\n`);
  response.on('finish', () => {
    // The next request may arrive before this event. The connection is then not idle.
    if (!socket.destroyed && newest.get(socket) === response) idle.add(socket);
  });
  const isWithheld = method !== 'GET' && (answers === 'held' || (answers === 'cut' && isUsed));
  if (isWithheld) process.send?.('withheld');
  if (isWithheld && answers === 'cut') {
    socket.destroy();
    return;
  }
  request.resume().on('end', () => {
    const answer = (): void => {
      const hasBody = method === 'GET' || method === 'POST';
      const body = hasBody ? Buffer.from(JSON.stringify({ marker })) : undefined;
      response.writeHead(method === 'POST' ? 201 : hasBody ? 200 : 204, {
        ...(body && { 'content-type': 'application/json', 'content-length': body.length }),
        ...(isStopping && { connection: 'close' }),
      });
      if (answers === 'half' && body !== undefined) {
        response.write(body.subarray(0, body.length / 2), () => process.send?.('withheld'));
        return;
      }
      response.end(body);
    };
    if (isWithheld) held.push(answer);
    else setTimeout(answer, answers === 'slow' ? slowMs : Number(answerMs));
  });
});
server.on('connection', (socket) => socket.once('close', () => idle.delete(socket)));

function closeIdle(): void {
  for (const socket of idle) socket.destroy();
}

// `reusePort`: a new process can listen before the old one has ended.
server.listen({ host: address, port: Number(port), backlog: 1024, reusePort: true }, () => {
  const bound = server.address();
  process.send?.({ port: typeof bound === 'object' ? bound?.port : 0 });
});

process.on('SIGTERM', () => {
  isStopping = true;
  // http.Server's close would also close connections without a first request.
  Server.prototype.close.call(server, () => process.exit(0));
  closeIdle();
});
process.on('SIGUSR2', closeIdle);
process.on('message', (message: Answers) => {
  answers = message;
  if (answers === 'given') for (const answer of held.splice(0)) answer();
});
process.on('disconnect', () => process.exit(0));
