// Writes single TLS 1.3 records [RFC 8446, 5], which Node's API cannot: records of one byte, and KeyUpdates.

import assert from 'node:assert/strict';
import { createCipheriv, createHmac } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { connect as secure, type ConnectionOptions, type TLSSocket } from 'node:tls';

// The types of a record's content [RFC 8446, B.1].
const handshake = 22;
const applicationData = 23;
// A KeyUpdate that asks for no KeyUpdate in return [RFC 8446, 4.6.3].
const keyUpdate = Buffer.of(24, 0, 0, 1, 0);

/** A client whose records the test makes. */
export class RecordClient {
  readonly socket: Socket;
  readonly secureSocket: TLSSocket;
  #secret: Buffer;
  #key: Buffer = Buffer.alloc(0);
  #iv: Buffer = Buffer.alloc(0);
  #sequence = 0n;

  private constructor(socket: Socket, secureSocket: TLSSocket, secret: Buffer) {
    this.socket = socket;
    this.secureSocket = secureSocket;
    this.#secret = secret;
    this.#useSecret();
  }

  static async open(port: number, options: ConnectionOptions): Promise<RecordClient> {
    const socket = connect(port, '127.0.0.1');
    const ciphers = 'TLS_AES_128_GCM_SHA256';
    const secureSocket = secure({ servername: 'localhost', ...options, socket, minVersion: 'TLSv1.3', ciphers });
    for (const each of [socket, secureSocket]) each.on('error', () => undefined);
    let secret: Buffer | undefined;
    secureSocket.on('keylog', (line: Buffer) => {
      const [label, , value] = line.toString().trim().split(' ');
      if (label === 'CLIENT_TRAFFIC_SECRET_0') secret = Buffer.from(value ?? '', 'hex');
    });
    await once(secureSocket, 'secureConnect');
    // The client has its keys now, and sends the last message of the handshake afterwards.
    await new Promise((resolve) => setImmediate(resolve));
    assert.ok(secret !== undefined);
    return new RecordClient(socket, secureSocket, secret);
  }

  /** Returns a record of application data with these bytes. */
  data(bytes: Uint8Array): Buffer {
    return this.#seal(bytes, applicationData);
  }

  /** Returns a record of one byte for each of `bytes`. */
  singles(bytes: Uint8Array): Buffer {
    return Buffer.concat(Array.from(bytes, (byte) => this.data(Buffer.of(byte))));
  }

  /** Returns `count` records with a KeyUpdate each. */
  keyUpdates(count: number): Buffer {
    const records = Array.from({ length: count }, () => {
      const record = this.#seal(keyUpdate, handshake);
      this.#secret = expand(this.#secret, 'traffic upd', 32);
      this.#useSecret();
      return record;
    });
    return Buffer.concat(records);
  }

  #useSecret(): void {
    this.#key = expand(this.#secret, 'key', 16);
    this.#iv = expand(this.#secret, 'iv', 12);
    this.#sequence = 0n;
  }

  #seal(bytes: Uint8Array, type: number): Buffer {
    const head = Buffer.of(applicationData, 3, 3, 0, 0);
    head.writeUInt16BE(bytes.length + 17, 3);
    const nonce = Buffer.from(this.#iv);
    nonce.writeBigUInt64BE(nonce.readBigUInt64BE(4) ^ this.#sequence, 4);
    this.#sequence += 1n;
    const cipher = createCipheriv('aes-128-gcm', this.#key, nonce).setAAD(head);
    return Buffer.concat([
      head,
      cipher.update(bytes),
      cipher.update(Buffer.of(type)),
      cipher.final(),
      cipher.getAuthTag(),
    ]);
  }

  destroy(): void {
    this.secureSocket.destroy();
    this.socket.destroy();
  }
}

// HKDF-Expand-Label [RFC 8446, 7.1] without context, for one block of SHA-256.
function expand(secret: Buffer, label: string, length: number): Buffer {
  const info = Buffer.concat([Buffer.of(0, length, label.length + 6), Buffer.from(`tls13 ${label}`), Buffer.of(0)]);
  return createHmac('sha256', secret).update(info).update(Buffer.of(1)).digest().subarray(0, length);
}
