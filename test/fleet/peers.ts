// A process of the fleet that is neither a gateway nor a balancer: `issuer ADDRESS PORT CERTIFICATE KEY FILE` serves the key set
// in FILE over HTTPS; FILE may be replaced. `collector ADDRESS PORT` counts traces. Both print a line for each request.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';

const [kind, address, port, certFile = '', keyFile = '', keySetFile = ''] = process.argv.slice(2);
const issuer = () =>
  createTlsServer({ cert: readFileSync(certFile), key: readFileSync(keyFile) }, (_request, response) => {
    console.log('keys');
    response.setHeader('content-type', 'application/json').end(readFileSync(keySetFile));
  });
const collector = () =>
  createServer((request, response) => {
    request.resume().on('end', () => {
      console.log('traces');
      response.setHeader('content-type', 'application/x-protobuf').end();
    });
  });
(kind === 'issuer' ? issuer() : collector()).listen(Number(port), address, () => console.log('ready'));
