// A process of the fleet that is neither a gateway nor a balancer: `issuer ADDRESS PORT CERTIFICATE KEY FILE` serves the key set
// in FILE over HTTPS; FILE may be replaced. `collector ADDRESS PORT` counts traces. Issuer and collector print a line for each
// request. `relay ADDRESS PORT HOST PORT MS` passes connections on, and delays every piece by half of MS.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { connect, createServer as createRelay, type Socket } from 'node:net';

const [kind, address, port, certFile = '', keyFile = '', keySetFile = ''] = process.argv.slice(2);

function pass(from: Socket, to: Socket): void {
  const delayMs = Number(keySetFile) / 2;
  from.on('data', (piece: Buffer) => setTimeout(() => to.write(piece), delayMs));
  from.on('error', () => undefined).on('close', () => to.destroy());
}

const relay = createRelay((client) => {
  const target = connect(Number(keyFile), certFile);
  pass(client, target);
  pass(target, client);
});
const server =
  kind === 'relay'
    ? relay
    : kind === 'issuer'
      ? createTlsServer({ cert: readFileSync(certFile), key: readFileSync(keyFile) }, (_request, response) => {
          console.log('keys');
          response.setHeader('content-type', 'application/json').end(readFileSync(keySetFile));
        })
      : createServer((request, response) => {
          request.resume().on('end', () => {
            console.log('traces');
            response.setHeader('content-type', 'application/x-protobuf').end();
          });
        });
server.listen(Number(port), address, () => console.log('ready'));
