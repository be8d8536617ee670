// Finds the listening sockets that a service manager passes on (sd_listen_fds(3)). They outlive this process, so a
// restart loses no connection. core/hosts/common/listen.ts makes servers listen on them.

import { StartError } from '../../core/hosts/common/start-error.ts';

/** File descriptors of listening sockets. If a list is empty, the gateway opens its own socket. */
export interface PassedSockets {
  readonly clients: readonly number[];
  readonly admin: readonly number[];
}

const firstDescriptor = 3;
// A larger number of passed sockets is a mistake; real setups have far fewer.
const socketsMax = 64;

/**
 * Finds the sockets passed to the process `pid`, by their names `clients` and `admin`. If there are only one
 * or two sockets and none has one of these names, the first is for clients and the second for the admin listener. Throws a
 * StartError if the use of the sockets is unclear.
 */
export function findPassedSockets(
  environment: Readonly<Record<string, string | undefined>>,
  pid: number,
): PassedSockets {
  const { LISTEN_FDS: count = '', LISTEN_PID: receiver, LISTEN_FDNAMES: names = '' } = environment;
  if (receiver !== String(pid) || count === '') {
    return { clients: [], admin: [] };
  }
  if (!/^\d{1,2}$/.test(count) || Number(count) > socketsMax) {
    throw new StartError(`LISTEN_FDS must be the number of passed sockets, 0 to ${socketsMax}`, undefined);
  }
  const descriptors = Array.from({ length: Number(count) }, (_, index) => firstDescriptor + index);
  const nameOf = new Map(names.split(':').map((name, index) => [firstDescriptor + index, name]));
  const named = (name: string): number[] => descriptors.filter((each) => nameOf.get(each) === name);
  const byName = { clients: named('clients'), admin: named('admin') };
  const known = byName.clients.length + byName.admin.length;
  if (known === descriptors.length) {
    return byName;
  }
  if (known === 0 && descriptors.length <= 2) {
    return { clients: descriptors.slice(0, 1), admin: descriptors.slice(1) };
  }
  throw new StartError(
    `LISTEN_FDS passes ${descriptors.length} sockets, but it is not clear which are for clients and which for the admin listener: name each of them clients or admin (FileDescriptorName=)`,
    undefined,
  );
}

type Places = Partial<Record<'host' | 'port' | 'adminHost' | 'adminPort', string>>;

/** Returns the texts shown instead of HOST and PORT, or of ADMIN_HOST and ADMIN_PORT, for each listener with a passed socket. */
export function settingsOfSockets({ clients, admin }: PassedSockets, url: string, adminUrl: string): Places {
  return { ...placeOf(url, clients, 'host', 'port'), ...placeOf(adminUrl, admin, 'adminHost', 'adminPort') };
}

function placeOf(
  url: string,
  { length: count }: readonly number[],
  hostName: keyof Places,
  portName: keyof Places,
): Places {
  if (count === 0) {
    return {};
  }
  const { hostname, port, protocol } = new URL(url);
  const others = count === 1 ? '' : ` and ${count - 1} more`;
  // A URL omits the default port of its protocol.
  const shownPort = port || (protocol === 'https:' ? '443' : '80');
  return { [hostName]: hostname + others, [portName]: shownPort + others };
}
