// A gateway in one of its hosts, in a process of its own that a test can pause. Arguments: the host, the backend's address
// and the settings in JSON. Prints the port.

import { createObserver, starters, type HostName, type Settings } from '../helpers/gateway.ts';

const [, , host = '', backendUrl = '', settings = ''] = process.argv;
const options = { backendUrl, observer: createObserver().observer, ...(JSON.parse(settings) as Settings) };
const { port } = await starters[host as Exclude<HostName, 'command'>](options, {});
process.stdout.write(`port ${port}\n`);
