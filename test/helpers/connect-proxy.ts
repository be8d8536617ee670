// An egress proxy: opens tunnels for CONNECT and forwards plain requests.

import { once } from 'node:events';
import { createServer, request as sendRequest } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';

export class ConnectProxy implements AsyncDisposable {
  /** The targets of all requests, such as `CONNECT issuer.test:443` and `POST http://127.0.0.1:4318/v1/traces`. */
  readonly requests: string[] = [];
  /** The values of `proxy-authorization`, in the order of the requests. */
  readonly credentials: (string | undefined)[] = [];
  /** Answers a CONNECT; default: opens a tunnel to 127.0.0.1, whatever the name in the target. */
  answer: (socket: Socket, port: number) => void = openTunnel;
  readonly #server = createServer();
  readonly #sockets = new Set<Socket>();

  private constructor() {
    this.#server.on('connection', (socket) => {
      this.#sockets.add(socket.on('error', () => undefined));
      socket.once('close', () => this.#sockets.delete(socket));
    });
    this.#server.on('connect', ({ url = '', headers }, socket: Socket) => {
      this.#note(`CONNECT ${url}`, headers['proxy-authorization']);
      this.answer(socket, Number(/\d+$/.exec(url)?.[0]));
    });
    this.#server.on('request', (request, response) => {
      const { method = '', url = '', headers } = request;
      this.#note(`${method} ${url}`, headers['proxy-authorization']);
      const onward = sendRequest(url, { method, headers }, (answer) => {
        response.writeHead(answer.statusCode ?? 500, answer.headers);
        answer.pipe(response);
      });
      request.pipe(onward.on('error', () => response.destroy()));
    });
  }

  static async start(): Promise<ConnectProxy> {
    const proxy = new ConnectProxy();
    await once(proxy.#server.listen(0, '127.0.0.1'), 'listening');
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** The number of open connections from clients. */
  get open(): number {
    return this.#sockets.size;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #note(request: string, credentials: string | undefined): void {
    this.requests.push(request);
    this.credentials.push(credentials);
  }
}

function openTunnel(socket: Socket, port: number): void {
  const onward = connect(port, '127.0.0.1', () => {
    socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
    socket.pipe(onward).pipe(socket);
  });
  onward.on('error', () => socket.destroy());
  // Without its destination, the pipe is paused and would not read the end.
  onward.once('close', () => socket.resume());
  socket.once('close', () => onward.destroy());
}
