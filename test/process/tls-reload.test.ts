// New certificate files while the gateway runs [D37]: complete, matching and valid files are used for new connections;
// other files are refused.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, mkdirSync, openSync, renameSync, symlinkSync, writeFileSync, writeSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { ConnectionOptions } from 'node:tls';
import { noOpenssl, type Issued } from '../helpers/certificates.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { type Command, logged, type LogLine, startCommand } from '../helpers/command.ts';
import { assertReply } from '../helpers/expected.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { useBackend, useCertificates } from '../helpers/suites.ts';

const path = '/api/work-items/7';
const item = '{"id":7}';
const taken = 'new certificate in force';
const refused = 'new certificate files refused: the previous certificates stay in force';
const changed = 'SIGHUP: new connections use the new settings';
const again = 'certificate files again match the certificates in force';

const backend = await useBackend(item);

describe('new certificate files', { skip: noOpenssl }, () => {
  const folder = useCertificates();
  const authority = folder.authority('authority');
  const others = folder.authority('others');
  const [first, second, third, fourth] = ['first', 'second', 'third', 'fourth'].map((name) =>
    folder.issue(authority, name),
  ) as [Issued, Issued, Issued, Issued];
  const expired = folder.issue(authority, 'expired', { days: -1 });

  let count = 0;
  /** Starts a gateway with a settings file. `put` replaces its certificate and key, and `write` the settings. */
  async function start(issued: Issued, environment: NodeJS.ProcessEnv = {}) {
    const link = folder.file(`place-${(count += 1)}`);
    const [certFile, keyFile] = [join(link, 'tls.crt'), join(link, 'tls.key')];
    // Replaces both files atomically by a symbolic link, as Kubernetes does.
    const put = ({ cert, key }: Pick<Issued, 'cert' | 'key'>): void => {
      const version = folder.file(`version-${(count += 1)}`);
      mkdirSync(version);
      writeFileSync(join(version, 'tls.crt'), cert);
      writeFileSync(join(version, 'tls.key'), key);
      symlinkSync(version, `${link}-next`);
      renameSync(`${link}-next`, link);
    };
    put(issued);
    const settings = folder.file(`settings-${(count += 1)}`);
    const write = (variables: Readonly<Record<string, string>> = {}): void => {
      const all = { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile, TLS_RELOAD_MS: '50', ...variables };
      writeFileSync(settings, Object.entries(all).map(([name, value]) => `${name}=${value}\n`).join('')); // prettier-ignore
    };
    write();
    const command = await startCommand({ BACKEND_URL: backend.url, SETTINGS_FILE: settings, ...environment });
    return Object.assign(command, { certFile, keyFile, put, write });
  }

  async function connect({ port }: Command, options: ConnectionOptions = {}) {
    return await RawClient.openSecure(port, { ca: authority.cert, servername: 'localhost', ...options });
  }

  /** The name in the certificate of a new connection. */
  async function shownName(gateway: Command): Promise<string | undefined> {
    await using client = await connect(gateway);
    assertReply(await client.call('GET', path), 200, item);
    return client.secureSocket.getPeerX509Certificate()?.subject.slice('CN='.length);
  }

  /** Resolves when the log has `amount` lines with this message, and fails if it has more. Returns the last line. */
  async function nth(amount: number, gateway: Command, message: string): Promise<LogLine> {
    const lines = () => gateway.logs.filter(({ msg }) => msg === message);
    await poll(() => lines().length >= amount, `${amount} lines: ${message}`);
    assert.equal(lines().length, amount, message);
    return lines().at(-1) ?? {};
  }

  describe('of a gateway with two workers', () => {
    let gateway: Awaited<ReturnType<typeof start>>;
    before(async () => {
      gateway = await start(first, { WORKERS: '2' });
    });
    after(() => gateway[Symbol.asyncDispose]());

    test('take effect for new connections; open connections stay, and sessions are not resumed', async () => {
      await using open = await connect(gateway);
      const session = once(open.secureSocket, 'session');
      assertReply(await open.call('GET', path), 200, item);
      // Between these two writes the key does not match the certificate, so the gateway must not use this pair.
      writeFileSync(gateway.keyFile, second.key);
      writeFileSync(gateway.certFile, second.cert);
      assert.partialDeepStrictEqual(await nth(1, gateway, taken), { use: 'clients', subject: 'CN=second' });
      await poll(async () => (await shownName(gateway)) === 'second', 'the new certificate is shown');
      // Each worker receives the certificates separately, so several connections are tried.
      for (let round = 0; round < 4; round += 1) assert.equal(await shownName(gateway), 'second');
      await using next = await connect(gateway, { session: (await session)[0] as Buffer });
      assert.equal(next.secureSocket.isSessionReused(), false);
      assertReply(await open.call('GET', path), 200, item);
    });

    test('that do not match or are truncated, empty or expired are refused, with one log line for each change', async () => {
      const cert = `TLS_CERT_FILE ("${gateway.certFile}")`;
      const key = `TLS_KEY_FILE ("${gateway.keyFile}")`;
      const date = new Date(Date.now() - 86_400_000).toISOString().slice(0, 10);
      for (const [index, [certText, keyText, problem]] of [
        [third.cert, first.key, `${key} has a key that does not match the certificate in ${cert}`],
        [third.cert.slice(0, 200), third.key, `${cert} has a truncated certificate`],
        [authority.cert + third.cert, third.key, `${key} has the key of certificate number 2 in ${cert}: put that certificate first`],
        [third.cert, third.key.slice(0, 100), `${key} has no complete private key in PEM format`],
        ['', third.key, `${cert} has no certificate in PEM format`],
        [expired.cert, expired.key, `the certificate in ${cert} expired on ${date}`],
      ].entries()) {
        gateway.put({ cert: certText ?? '', key: keyText ?? '' });
        assert.partialDeepStrictEqual(await nth(index + 1, gateway, refused), { level: 'error', problems: [problem] });
        assert.equal(await shownName(gateway), 'second');
      }
      const metrics = await gateway.metrics();
      assert.match(metrics, /^work_item_gateway_certificate_files_refused\{use="clients"\} 1$/m);
      assert.match(metrics, /^work_item_gateway_certificate_reloads_total\{use="clients",result="refused"\} 6$/m);
      assert.match(metrics, /^work_item_gateway_certificate_days_left\{use="clients"\} 29\.\d+$/m);
      gateway.put(second);
      await nth(1, gateway, again);
      assert.match(await gateway.metrics(), /^work_item_gateway_certificate_files_refused\{use="clients"\} 0$/m);
      gateway.put(third);
      await nth(2, gateway, taken);
      await poll(async () => (await shownName(gateway)) === 'third', 'the new certificate is shown');
    }); // prettier-ignore

    test('are read on SIGHUP; two SIGHUPs in quick succession count as one, and refused files do not hinder it', async () => {
      const hangUp = () => gateway.signal('SIGHUP');
      gateway.write({ TLS_RELOAD_MS: '3600000' });
      hangUp();
      await nth(1, gateway, changed);
      gateway.put(second);
      hangUp();
      hangUp();
      await nth(3, gateway, taken);
      await poll(async () => (await shownName(gateway)) === 'second', 'the new certificate is shown');
      gateway.put({ cert: first.cert, key: second.key });
      gateway.write({ TLS_RELOAD_MS: '3600000', DOCS: 'true' });
      hangUp();
      await nth(7, gateway, refused);
      await nth(2, gateway, changed);
      assert.equal(await shownName(gateway), 'second');
      assert.equal((await nth(3, gateway, taken))['subject'], 'CN=second');
    });

    test('do not affect a drain [D33]', async () => {
      gateway.write();
      gateway.signal('SIGHUP');
      await nth(3, gateway, changed);
      const gate = createGate();
      backend.answersOnce(behind(gate, answer(item)));
      await using client = await connect(gateway);
      const reply = client.call('GET', path);
      await backend.until(() => backend.requests.length === 1, 'the backend has the call');
      gateway.signal('SIGTERM');
      await logged(gateway, /^draining/);
      gateway.put(third);
      await nth(4, gateway, taken);
      gate.open();
      assertReply(await reply, 200, item);
      assert.equal(await gateway.exitCode(), 0);
    });
  });

  test("of the clients' authorities take effect, and a client certificate is still required [D38]", async () => {
    const known = folder.issue(authority, 'known');
    const other = folder.issue(others, 'other-client');
    const caFile = folder.write('client-ca.pem', authority.cert);
    await using gateway = await start(first, { TLS_CLIENT_CA_FILE: caFile });
    const assertAccepted = async (accepted: Issued, ...rejected: (Issued | undefined)[]) => {
      const callAs = async (client?: Issued) => {
        await using each = await connect(gateway, { cert: client?.cert, key: client?.key });
        assertReply(await each.call('GET', path), 200, item);
      };
      await callAs(accepted);
      for (const client of rejected) await assert.rejects(callAs(client));
    };
    await assertAccepted(known, other);
    // The gateway's own certificate changes, but not the authorities.
    gateway.put(second);
    await nth(1, gateway, taken);
    await assertAccepted(known, other, undefined);
    writeFileSync(caFile, others.cert);
    await nth(2, gateway, taken);
    await assertAccepted(other, known, undefined);
  });

  test("of the backend's authorities take effect for new connections to the backend [D40]", async () => {
    const issue = (by: Issued, name: string) => folder.issue(by, name, { names: ['DNS:items.internal'] });
    const server = createServer(issue(authority, 'backend-1'), (_, outgoing) => outgoing.end(item));
    after(() => server.close().closeAllConnections());
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const caFile = folder.write('backend-ca.pem', authority.cert);
    await using gateway = await startCommand({
      BACKEND_URL: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
      BACKEND_CA_FILE: caFile,
      BACKEND_SERVER_NAME: 'items.internal',
      BACKEND_IDLE_TIMEOUT_MS: '1',
      TLS_RELOAD_MS: '50',
    });
    const status = async () => (await gateway.call('GET', path)).status;
    assert.equal(await status(), 200);
    server.setSecureContext(issue(others, 'backend-2'));
    server.closeAllConnections();
    assert.equal(await status(), 500);
    writeFileSync(caFile, others.cert);
    await nth(1, gateway, taken);
    assert.equal(await status(), 200);
  });

  test('that have expired before the start are used, and log and metrics report it; others that expire soon cause a warning', async () => {
    await using gateway = await start(expired);
    const { level, msg } = await gateway.log(({ use }) => use === 'clients', 'a line about the certificate');
    assert.equal(level, 'error');
    assert.match(String(msg), /^certificate in force, but the certificate in TLS_CERT_FILE .* expired on /);
    assert.match(await gateway.metrics(), /^work_item_gateway_certificate_days_left\{use="clients"\} -1\.\d+$/m);
    await assert.rejects(connect(gateway), /certificate has expired/);
    await using client = await connect(gateway, { rejectUnauthorized: false });
    assertReply(await client.call('GET', path), 200, item);
    gateway.put(folder.issue(authority, 'short', { days: 2 }));
    assert.equal((await nth(1, gateway, `${taken}, but it expires in 1 day`))['level'], 'warn');
  });

  test('that cannot be read yet delay neither calls nor reloads, and a check of old files ends without effect', async () => {
    await using gateway = await start(first);
    /** Makes the gateway's check wait for the certificate file. The returned function lets it read this certificate. */
    const wait = async (next: Issued) => {
      writeFileSync(gateway.keyFile, next.key);
      execFileSync('mkfifo', [`${gateway.certFile}-next`]);
      renameSync(`${gateway.certFile}-next`, gateway.certFile);
      let fifo = -1;
      await poll(() => {
        try {
          fifo = openSync(gateway.certFile, constants.O_WRONLY | constants.O_NONBLOCK);
        } catch (error) {
          assert.equal((error as NodeJS.ErrnoException).code, 'ENXIO');
        }
        return fifo !== -1;
      }, 'the gateway reads the file');
      return () => {
        writeFileSync(`${gateway.certFile}-next`, next.cert);
        renameSync(`${gateway.certFile}-next`, gateway.certFile);
        writeSync(fifo, next.cert);
        closeSync(fifo);
      };
    };
    const hangUp = (variables: Readonly<Record<string, string>>): void => {
      gateway.write(variables);
      gateway.signal('SIGHUP');
    };
    let goOn = await wait(second);
    const hanging = folder.file('hanging.pem');
    execFileSync('mkfifo', [hanging]);
    hangUp({ TLS_CERT_FILE: hanging });
    assert.equal(await shownName(gateway), 'first');
    const line = await logged(gateway, /^SIGHUP: the reload failed/);
    assert.match(JSON.stringify(line), /the certificate files cannot be read: no answer for 3 s/);
    assert.equal(await shownName(gateway), 'first');
    // Other settings take effect after 3 s, and the certificate once the check can read it.
    hangUp({ DOCS: 'true' });
    await nth(1, gateway, 'reloaded');
    await using client = await connect(gateway);
    assert.equal((await client.call('GET', '/openapi.json')).status, 200);
    goOn();
    await nth(1, gateway, taken);
    assert.equal(await shownName(gateway), 'second');
    // After a SIGHUP with other files, a check of the old files has no effect.
    goOn = await wait(first);
    const files = { TLS_CERT_FILE: third.certFile, TLS_KEY_FILE: third.keyFile };
    hangUp(files);
    await nth(2, gateway, 'reloaded');
    assert.equal(await shownName(gateway), 'third');
    goOn();
    // A change of the new files is found after the old check has ended.
    writeFileSync(third.keyFile, fourth.key);
    writeFileSync(third.certFile, fourth.cert);
    await nth(2, gateway, taken);
    assert.equal(await shownName(gateway), 'fourth');
  });
});
