// A lower bound for gateways on Node: copies bytes between sockets, without any HTTP. The backend gets the client's path.
import { connect, createServer } from 'node:net';

const port = Number(process.env['PORT']);
const backend = new URL(process.env['BACKEND_URL'] ?? '');

createServer({ noDelay: true }, (client) => {
  const upstream = connect({ port: Number(backend.port), host: backend.hostname, noDelay: true });
  client.on('data', (chunk) => {
    if (!upstream.write(chunk)) client.pause();
  });
  upstream.on('drain', () => client.resume());
  upstream.on('data', (chunk) => {
    if (!client.write(chunk)) upstream.pause();
  });
  client.on('drain', () => upstream.resume());
  client.on('error', () => upstream.destroy());
  upstream.on('error', () => client.destroy());
  client.on('close', () => upstream.destroy());
  upstream.on('close', () => client.destroy());
}).listen(port, '127.0.0.1', 1024);
