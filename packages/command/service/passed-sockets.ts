// Listening sockets that a service manager has opened and passes on, so that they outlive this process and a restart
// loses no connection (sd_listen_fds(3)). Which there are is read here; listening on them is listen.ts's affair.

import { StartError } from '../../core/hosts/common/start-error.ts';

/** File descriptors of listening sockets, by who connects to them; empty where an own one is to be opened. */
export interface PassedSockets {
  readonly clients: readonly number[];
  readonly admin: readonly number[];
}

const firstDescriptor = 3;
// Far more than anybody has; a number beyond it is a slip.
const socketsMax = 64;

/**
 * The sockets that were passed to the process `pid`: those for another one are none of its business. By their names
 * `clients` and `admin`, or where none has such a name in this order. Throws a StartError when they cannot be told apart.
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
    throw new StartError(`LISTEN_FDS must be a number of sockets, 0 to ${socketsMax}`, undefined);
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
    `${descriptors.length} sockets were passed on by LISTEN_FDS, and it is not clear which are for whom: name each of them clients or admin (FileDescriptorName=)`,
    undefined,
  );
}

type Places = Partial<Record<'host' | 'port' | 'adminHost' | 'adminPort', string>>;

/** What is in force in place of HOST, PORT, ADMIN_HOST and ADMIN_PORT where sockets were passed on that listen at these URLs. */
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
  // A URL leaves out the port that its protocol has anyway.
  const shownPort = port || (protocol === 'https:' ? '443' : '80');
  return { [hostName]: hostname + others, [portName]: shownPort + others };
}
