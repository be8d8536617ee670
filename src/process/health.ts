// The command `health`: whether a gateway on this machine is alive, for what can run a program but not make a request,
// such as a container without a shell.

// Imported as a module it would bring a WebSocket client and what that needs along.
const { request } = process.getBuiltinModule('node:http');

const timeoutMs = 4_000;
const bytesMax = 4_096;

/** What `/livez` of the admin listener on `host` and `port` says. Never rejects. */
export async function askHealth(host: string, port: number): Promise<{ isAlive: boolean; text: string }> {
  const { promise, resolve } = Promise.withResolvers<{ isAlive: boolean; text: string }>();
  // An address that means all of them is this machine too.
  const own = host === '0.0.0.0' || host === '::' ? 'localhost' : host;
  const outgoing = request({ host: own, port, path: '/livez', agent: false }, (answer) => {
    let text = '';
    answer.setEncoding('utf8');
    answer.on('data', (part: string) => {
      text = (text + part).slice(0, bytesMax);
    });
    answer.on('error', (error) => {
      resolve({ isAlive: false, text: error.message });
    });
    answer.on('end', () => {
      resolve({ isAlive: answer.statusCode === 200, text: `${answer.statusCode ?? 0} ${text.trim()}` });
    });
  });
  const timer = setTimeout(() => {
    outgoing.destroy(new Error(`no answer within ${timeoutMs / 1_000} s`));
  }, timeoutMs);
  outgoing.on('error', (error: NodeJS.ErrnoException) => {
    resolve({ isAlive: false, text: error.message === '' ? String(error.code) : error.message });
  });
  outgoing.end();
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
  }
}
