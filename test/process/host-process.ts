// A gateway in one of its hosts, in a process of its own that a test can pause. Arguments: the host, the backend's address
// and the time limits. Prints the port.

import { starters, type HostName } from '../helpers/gateway.ts';

const [, , host = '', backendUrl = '', limitMs] = process.argv;
const names = ['backendTimeoutMs', 'backendConnectTimeoutMs', 'requestTimeoutMs', 'replyStallTimeoutMs'];
const limits = Object.fromEntries(names.map((name) => [name, Number(limitMs)]));
const { port } = await starters[host as Exclude<HostName, 'command'>]({ backendUrl, log: false, ...limits }, {});
process.stdout.write(`port ${port}\n`);
