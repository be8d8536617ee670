// A backend process to be killed and restarted: each request's method and request id go to a file before
// anything else happens, so that the record outlives the process. Arguments: port, file, and how long an answer
// takes in milliseconds. SIGTERM stops it gently; SIGUSR2 closes its idle connections and nothing else. A message says what
// becomes of answers to writes from now on, and one goes back for each that is withheld.

import { openSync, writeSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { Server, type Socket } from 'node:net';
import type { WriteAnswers } from './restarting-backend.ts';

const [port = '0', file = '', answerMs = '0'] = process.argv.slice(2);
const record = openSync(file, 'a');
let isStopping = false;
let answers: WriteAnswers = 'given';
const held: (() => void)[] = [];
// Connections that have served a request and have none under way. One that waits for its first request is not
// among them: to close that as well would lose a request that no client may send again.
const idle = new Set<Socket>();
const newest = new WeakMap<Socket, ServerResponse>();

const server = createServer({ keepAliveTimeout: 72_000, noDelay: true }, (request, response) => {
  const { method, socket } = request;
  const isUsed = newest.has(socket);
  idle.delete(socket);
  newest.set(socket, response);
  const marker = String(request.headers['x-request-id']);
  // Appended by the system in one go: the line is there even when the process is killed right after.
  writeSync(record, `${String(method)} ${marker}\n`);
  response.on('finish', () => {
    // The next request may be here before this event.
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
      response.end(body);
    };
    if (isWithheld) held.push(answer);
    else setTimeout(answer, Number(answerMs));
  });
});
server.on('connection', (socket) => socket.once('close', () => idle.delete(socket)));

function closeIdle(): void {
  for (const socket of idle) socket.destroy();
}

// Several may listen on one port, so that a new one can take over from an old one.
server.listen({ host: '127.0.0.1', port: Number(port), backlog: 1024, reusePort: true }, () => {
  const address = server.address();
  process.send?.({ port: typeof address === 'object' ? address?.port : 0 });
});

process.on('SIGTERM', () => {
  isStopping = true;
  // Not http.Server's own close, which closes connections that wait for their first request too.
  Server.prototype.close.call(server, () => process.exit(0));
  closeIdle();
});
process.on('SIGUSR2', closeIdle);
process.on('message', (message: WriteAnswers) => {
  answers = message;
  if (answers === 'given') for (const answer of held.splice(0)) answer();
});
process.on('disconnect', () => process.exit(0));
