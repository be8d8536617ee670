// New certificate files while the gateway runs [D37]: complete, matching and valid files are used for new connections;
// other files are refused.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  constants,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { ConnectionOptions } from 'node:tls';
import { noOpenssl, type Issued } from '../helpers/certificates.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { type Command, logged, type LogLine, startCommand } from '../helpers/command.ts';
import { assertReply } from '../helpers/expected.ts';
import { RawClient, request } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { useBackend, useCertificates } from '../helpers/suites.ts';

const item = '{"id":7}';
const taken = 'new certificate in force';
const refused = 'new certificate files refused: the previous certificates stay in force';

const backend = await useBackend(item);

describe('new certificate files', { skip: noOpenssl }, () => {
  const folder = useCertificates();
  const authority = folder.authority('authority');
  const first = folder.issue(authority, 'first');
  const second = folder.issue(authority, 'second');
  const third = folder.issue(authority, 'third');

  let count = 0;
  /** Makes the certificate files of one gateway. They first contain `issued`; `put` replaces them. */
  function place(issued: Issued) {
    const link = folder.file(`place-${(count += 1)}`);
    const [certFile, keyFile] = [join(link, 'tls.crt'), join(link, 'tls.key')];
    // Replaces both files atomically. Otherwise a gateway on a busy machine could use the state between two writes.
    const put = ({ cert, key }: Pick<Issued, 'cert' | 'key'>): void => {
      const version = folder.file(`version-${(count += 1)}`);
      mkdirSync(version);
      writeFileSync(join(version, 'tls.crt'), cert);
      writeFileSync(join(version, 'tls.key'), key);
      symlinkSync(version, `${link}-next`);
      renameSync(`${link}-next`, link);
    };
    put(issued);
    return { certFile, keyFile, put, environment: { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile } };
  }

  async function start(environment: NodeJS.ProcessEnv) {
    return await startCommand({ BACKEND_URL: backend.url, TLS_RELOAD_MS: '50', ...environment });
  }

  async function connect(gateway: Command, options: ConnectionOptions = {}) {
    return await RawClient.openSecure(gateway.port, { ca: authority.cert, servername: 'localhost', ...options });
  }

  /** The subject of the certificate on a new connection. */
  async function shownName(gateway: Command): Promise<string | undefined> {
    await using client = await connect(gateway);
    assertReply(await client.call('GET', '/api/work-items/7'), 200, item);
    return client.secureSocket.getPeerX509Certificate()?.subject;
  }

  async function linesOf(gateway: Command, message: string, atLeast: number): Promise<readonly LogLine[]> {
    const lines = () => gateway.logs.filter(({ msg }) => msg === message);
    await poll(() => lines().length >= atLeast, `${atLeast} lines: ${message}`);
    return lines();
  }

  test('new files take effect for new connections; open connections stay, and sessions are not resumed', async () => {
    const files = place(first);
    await using gateway = await start({ ...files.environment, WORKERS: '2' });
    await using open = await connect(gateway);
    let session: Buffer | undefined;
    open.secureSocket.on('session', (next: Buffer) => (session = next));
    assertReply(await open.call('GET', '/api/work-items/7'), 200, item);
    await poll(() => session !== undefined, 'the client receives a session');
    // Between these two writes the key does not match the certificate, so the gateway must not use this pair.
    writeFileSync(files.keyFile, second.key);
    writeFileSync(files.certFile, second.cert);
    const [line] = await linesOf(gateway, taken, 1);
    assert.equal(line?.['use'], 'clients');
    assert.equal(line['subject'], 'CN=second');
    await poll(async () => (await shownName(gateway)) === 'CN=second', 'the new certificate is shown');
    // Each worker receives the certificates separately, so several connections are tried.
    for (let round = 0; round < 4; round += 1) assert.equal(await shownName(gateway), 'CN=second');
    await using next = await connect(gateway, { session });
    assert.equal(next.secureSocket.isSessionReused(), false);
    assertReply(await next.call('GET', '/api/work-items/7'), 200, item);
    assertReply(await open.call('GET', '/api/work-items/7'), 200, item);
    assert.equal((await linesOf(gateway, taken, 1)).length, 1);
  });

  test('new files are found when a symbolic link to their folder changes, as in Kubernetes', async () => {
    for (const [name, issued] of [
      ['v1', first],
      ['v2', second],
    ] as const) {
      mkdirSync(folder.file(name));
      folder.write(join(name, 'tls.crt'), issued.cert);
      folder.write(join(name, 'tls.key'), issued.key);
    }
    const link = folder.file('current');
    symlinkSync('v1', link);
    await using gateway = await start({ TLS_CERT_FILE: join(link, 'tls.crt'), TLS_KEY_FILE: join(link, 'tls.key') });
    assert.equal(await shownName(gateway), 'CN=first');
    symlinkSync('v2', folder.file('next'));
    renameSync(folder.file('next'), link);
    await linesOf(gateway, taken, 1);
    assert.equal(await shownName(gateway), 'CN=second');
  });

  test('files that do not match or are truncated, empty or expired are refused, with one log line for each change', async () => {
    const files = place(first);
    const expired = folder.issue(authority, 'expired', { days: -1 });
    await using gateway = await start(files.environment);
    const cert = `TLS_CERT_FILE ("${files.certFile}")`;
    const key = `TLS_KEY_FILE ("${files.keyFile}")`;
    const date = new Date(Date.now() - 86_400_000).toISOString().slice(0, 10);
    const steps: readonly (readonly [certText: string, keyText: string, problem: string])[] = [
      [second.cert, first.key, `${key} has a key that does not match the certificate in ${cert}`],
      [second.cert.slice(0, 200), second.key, `${cert} has a truncated certificate`],
      [
        `${authority.cert}${second.cert}`,
        second.key,
        `${key} has the key of certificate number 2 in ${cert}: put that certificate first`,
      ],
      [second.cert, second.key.slice(0, 100), `${key} has no complete private key in PEM format`],
      ['', second.key, `${cert} has no certificate in PEM format`],
      [expired.cert, expired.key, `the certificate in ${cert} expired on ${date}`],
    ];
    for (const [index, [certText, keyText, problem]] of steps.entries()) {
      files.put({ cert: certText, key: keyText });
      const lines = await linesOf(gateway, refused, index + 1);
      assert.equal(lines.length, index + 1);
      assert.deepEqual(lines.at(-1)?.['problems'], [problem]);
      assert.equal(lines.at(-1)?.['level'], 'error');
      assert.equal(await shownName(gateway), 'CN=first');
    }
    const metrics = await gateway.metrics();
    assert.match(metrics, /^work_item_gateway_certificate_files_refused\{use="clients"\} 1$/m);
    assert.match(metrics, /^work_item_gateway_certificate_reloads_total\{use="clients",result="refused"\} 6$/m);
    assert.match(metrics, /^work_item_gateway_certificate_days_left\{use="clients"\} 29\.\d+$/m);
    files.put(second);
    await linesOf(gateway, taken, 1);
    assert.equal(await shownName(gateway), 'CN=second');
    assert.match(await gateway.metrics(), /^work_item_gateway_certificate_files_refused\{use="clients"\} 0$/m);
    assert.equal((await linesOf(gateway, refused, 6)).length, 6);
  });

  test("files of the clients' authorities take effect, and a client certificate is still required [D38]", async () => {
    const files = place(first);
    const others = folder.authority('others');
    const known = folder.issue(authority, 'known');
    const other = folder.issue(others, 'other-client');
    const caFile = folder.write('client-ca.pem', authority.cert);
    await using gateway = await start({ ...files.environment, TLS_CLIENT_CA_FILE: caFile });
    const callAs = async (client?: Issued) => {
      await using each = await connect(gateway, { cert: client?.cert, key: client?.key });
      assertReply(await each.call('GET', '/api/work-items/7'), 200, item);
    };
    await callAs(known);
    await assert.rejects(callAs(other));
    // The gateway's own certificate changes, but not the authorities.
    files.put(second);
    await linesOf(gateway, taken, 1);
    await assert.rejects(callAs());
    await assert.rejects(callAs(other));
    await callAs(known);
    writeFileSync(caFile, others.cert);
    await linesOf(gateway, taken, 2);
    await assert.rejects(callAs());
    await assert.rejects(callAs(known));
    await callAs(other);
  });

  test('files are read on SIGHUP; two SIGHUPs in quick succession count as one', async () => {
    const files = place(first);
    await using gateway = await start({ ...files.environment, TLS_RELOAD_MS: '3600000' });
    files.put(second);
    gateway.signal('SIGHUP');
    gateway.signal('SIGHUP');
    await linesOf(gateway, taken, 1);
    await linesOf(gateway, 'reloaded', 1);
    assert.equal(await shownName(gateway), 'CN=second');
    writeFileSync(files.certFile, first.cert);
    gateway.signal('SIGHUP');
    // Despite refused files, the settings are reloaded.
    await linesOf(gateway, refused, 1);
    await linesOf(gateway, 'reloaded', 2);
    assert.equal(await shownName(gateway), 'CN=second');
    assert.equal((await linesOf(gateway, taken, 1)).length, 1);
  });

  describe('a check that waits for a file', () => {
    /** Starts a gateway with the certificate `first`, whose check then waits for the file of the certificate. */
    async function startWaiting() {
      const old = folder.issue(authority, `old-${(count += 1)}`);
      const settings = folder.file(`settings-${count}`);
      const write = (certificate: Issued, ...lines: readonly string[]): void =>
        writeFileSync(
          settings,
          [`TLS_CERT_FILE=${certificate.certFile}`, `TLS_KEY_FILE=${certificate.keyFile}`, ...lines].join('\n'),
        );
      write(old);
      const gateway = await start({ SETTINGS_FILE: settings });
      writeFileSync(old.keyFile, second.key);
      execFileSync('mkfifo', [`${old.certFile}-next`]);
      renameSync(`${old.certFile}-next`, old.certFile);
      let fifo = -1;
      await poll(() => {
        try {
          fifo = openSync(old.certFile, constants.O_WRONLY | constants.O_NONBLOCK);
        } catch (error) {
          assert.equal((error as NodeJS.ErrnoException).code, 'ENXIO');
        }
        return fifo !== -1;
      }, 'the gateway reads the file');
      /** Lets the check read the certificate `second`. */
      const goOn = (): void => {
        writeFileSync(`${old.certFile}-next`, second.cert);
        renameSync(`${old.certFile}-next`, old.certFile);
        writeSync(fifo, second.cert);
        closeSync(fifo);
      };
      return { gateway, old, write, goOn };
    }

    test('after SIGHUP with a new TLS_CERT_FILE, the check does not bring a certificate of the old file into force', async () => {
      const { gateway: started, write, goOn } = await startWaiting();
      await using gateway = started;
      write(third);
      gateway.signal('SIGHUP');
      await linesOf(gateway, 'reloaded', 1);
      assert.equal(await shownName(gateway), 'CN=third');
      goOn();
      // A change of the new files is found after the old check has ended.
      const fourth = folder.issue(authority, 'fourth');
      writeFileSync(third.keyFile, fourth.key);
      writeFileSync(third.certFile, fourth.cert);
      await linesOf(gateway, taken, 1);
      assert.equal(await shownName(gateway), 'CN=fourth');
      assert.equal((await linesOf(gateway, taken, 1)).length, 1);
    });

    test('if SIGHUP names a file that cannot be read in 3 s, the gateway serves on with the certificate before', async () => {
      const { gateway: started, write } = await startWaiting();
      await using gateway = started;
      const hanging = folder.issue(authority, 'hanging');
      rmSync(hanging.certFile);
      execFileSync('mkfifo', [hanging.certFile]);
      write(hanging);
      gateway.signal('SIGHUP');
      assert.match(String(await shownName(gateway)), /^CN=old/);
      const line = await gateway.log(({ msg }) => String(msg).startsWith('SIGHUP: the reload failed'), 'a refusal');
      assert.match(JSON.stringify(line), /the certificate files cannot be read: no answer for 3 s/);
      assert.match(String(await shownName(gateway)), /^CN=old/);
    });

    test('a SIGHUP that changes other settings takes effect, and so does the certificate once the check can read it', async () => {
      const { gateway: started, old, write, goOn } = await startWaiting();
      await using gateway = started;
      write(old, 'DOCS=true');
      gateway.signal('SIGHUP');
      await linesOf(gateway, 'reloaded', 1);
      await using client = await connect(gateway);
      assert.equal((await client.call('GET', '/openapi.json')).status, 200);
      goOn();
      await linesOf(gateway, taken, 1);
      assert.equal(await shownName(gateway), 'CN=second');
    });
  });

  test('files that are written during a drain do not affect the drain [D33]', async () => {
    const files = place(first);
    await using gateway = await start(files.environment);
    const gate = createGate();
    backend.answersOnce(behind(gate, answer(item)));
    await using client = await connect(gateway);
    const calls = backend.requests.length;
    const reply = client.call('GET', '/api/work-items/7');
    await backend.until(() => backend.requests.length === calls + 1, 'the backend has the call');
    gateway.signal('SIGTERM');
    await logged(gateway, /^draining/);
    files.put(second);
    await linesOf(gateway, taken, 1);
    gate.open();
    assertReply(await reply, 200, item);
    assert.equal(await gateway.exitCode(), 0);
  });

  test('files that expire soon cause a warning at the start', async () => {
    const files = place(folder.issue(authority, 'short', { days: 2 }));
    await using gateway = await start(files.environment);
    const line = await gateway.log(({ level, use }) => level === 'warn' && use === 'clients', 'a warning');
    assert.equal(line['msg'], 'certificate in force, but it expires in 1 day');
  });

  test('certificates that have expired before the start are used; log and metrics report the expiry', async () => {
    const expired = folder.issue(authority, 'long-expired', { days: -1 });
    const files = place(expired);
    await using gateway = await start(files.environment);
    const line = await gateway.log(({ level, use }) => level === 'error' && use === 'clients', 'an error');
    assert.match(String(line['msg']), /^certificate in force, but the certificate in TLS_CERT_FILE .* expired on /);
    assert.match(await gateway.metrics(), /^work_item_gateway_certificate_days_left\{use="clients"\} -1\.\d+$/m);
    await assert.rejects(connect(gateway), /certificate has expired/);
    await using client = await connect(gateway, { rejectUnauthorized: false });
    assertReply(await client.call('GET', '/api/work-items/7'), 200, item);
    // The gateway refuses the new file. Then the test puts the old file back.
    writeFileSync(files.certFile, first.cert);
    await linesOf(gateway, refused, 1);
    writeFileSync(files.certFile, expired.cert);
    await linesOf(gateway, 'certificate files again match the certificates in force', 1);
    assert.match(await gateway.metrics(), /^work_item_gateway_certificate_files_refused\{use="clients"\} 0$/m);
  });

  test("files of the backend's authorities take effect for new connections to the backend [D40]", async () => {
    const others = folder.authority('other-authority');
    let { cert, key } = folder.issue(authority, 'backend-1', { names: ['DNS:items.internal'] });
    const server = createServer({ cert, key }, (_, outgoing) => outgoing.end(item));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const caFile = folder.write('backend-ca.pem', authority.cert);
      await using gateway = await startCommand({
        BACKEND_URL: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
        BACKEND_CA_FILE: caFile,
        BACKEND_SERVER_NAME: 'items.internal',
        BACKEND_IDLE_TIMEOUT_MS: '1',
        TLS_RELOAD_MS: '50',
      });
      const call = async () => (await request(gateway.port, 'GET', '/api/work-items/7')).status;
      assert.equal(await call(), 200);
      ({ cert, key } = folder.issue(others, 'backend-2', { names: ['DNS:items.internal'] }));
      server.setSecureContext({ cert, key });
      server.closeAllConnections();
      assert.equal(await call(), 500);
      writeFileSync(caFile, others.cert);
      await linesOf(gateway, taken, 1);
      assert.equal(await call(), 200);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });
});
