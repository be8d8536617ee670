// Finds risky settings, for `check --audit`. Each rule is a row: what an attacker or a mistake could do, and what to set.

import { isThisMachine } from '../../core/options/accepted-values.ts';
import { anyOrigin } from '../../core/admission/cors.ts';
import { showValue, variableOf, type SettingName, type Settings } from './settings.ts';
import { connectionKindOf, neededMemory, readMemoryLimit } from './warnings.ts';

/** From the least to the most severe. */
export const severities = ['low', 'medium', 'high'] as const;

type Severity = (typeof severities)[number];

/** A risk of the settings. The JSON report has the same property names, and programs recognize the code. */
export interface Risk {
  readonly code: string;
  readonly severity: Severity;
  /** The settings that cause the risk, as variables with their values. Null if no value is set. */
  readonly settings: Readonly<Record<string, string | null>>;
  readonly risk: string;
  readonly advice: string;
}

interface Facts {
  readonly settings: Settings;
  /** True if clients on other machines can connect. */
  readonly isOpen: boolean;
  /** True if clients must identify themselves, by a token or a certificate. */
  readonly knowsClients: boolean;
  readonly isBehindProxy: boolean;
}

type Rule = readonly [
  code: string,
  names: readonly SettingName[],
  severityOf: (facts: Facts) => Severity | undefined,
  risk: string,
  advice: string,
];

// prettier-ignore
const rules: readonly Rule[] = [
  ['no-tokens', ['host', 'authIssuer'],
    ({ isOpen, knowsClients, isBehindProxy }) => (isOpen && !knowsClients ? (isBehindProxy ? 'medium' : 'high') : undefined),
    'Everybody who can reach this address can read, change and delete work items.',
    'Set AUTH_ISSUER and AUTH_AUDIENCE, or TLS_CLIENT_CA_FILE. If a proxy checks who calls, let only the proxy reach this address.'],
  ['no-tls', ['host', 'tlsCertFile'],
    ({ settings, isOpen, isBehindProxy }) =>
      isOpen && settings.tlsCertFile === '' ? (isBehindProxy ? 'low' : settings.authIssuer === '' ? 'medium' : 'high') : undefined,
    'Requests, replies and tokens cross the network unencrypted: others can read and change them.',
    'Set TLS_CERT_FILE and TLS_KEY_FILE, or put a proxy with TLS in front.'],
  ['wide-proxies', ['trustedProxies'],
    ({ settings }) => (settings.trustedProxies.some(isWide) ? 'high' : undefined),
    'Clients can send any address in x-forwarded-for: the log shows it, and each address has its own rate limit.',
    'List only the addresses of your own proxies and load balancers.'],
  ['no-rate-limit', ['host', 'rateLimit'],
    ({ settings, isOpen, isBehindProxy }) => (isOpen && !isBehindProxy && settings.rateLimit === '' ? 'medium' : undefined),
    'One client can use up the capacity of the gateway and of the backend.',
    'Set RATE_LIMIT, for instance to 100/60s, or limit requests in a proxy in front.'],
  ['any-host-name', ['allowedHosts'],
    ({ settings, isOpen, knowsClients }) =>
      settings.allowedHosts.length > 0 ? undefined : isOpen && !knowsClients ? 'medium' : 'low',
    "A web page can point its own host name at this address (DNS rebinding), and then call from a visitor's browser.",
    'Set ALLOWED_HOSTS to the host names that clients use.'],
  ['admin-open', ['adminHost'],
    ({ settings }) => (isThisMachine(settings.adminHost.toLowerCase()) ? undefined : 'medium'),
    'Everybody who can reach the admin port sees settings, metrics, and failed calls with the addresses of clients.',
    'Set ADMIN_HOST=localhost, or let only probes and monitoring reach the admin port.'],
  ['any-origin', ['corsOrigins'],
    ({ settings }) => (settings.corsOrigins.includes(anyOrigin) ? 'medium' : undefined),
    'Any web page can call the gateway from the browser of a visitor who can reach it, and read the replies.',
    'List the origins of your own pages in CORS_ORIGINS.'],
  ['memory', ['bufferedBytesMax', 'connectionsMax', 'workers'],
    ({ settings }) => (neededMemory(settings, connectionKindOf(settings)) > readMemoryLimit() ? 'medium' : undefined),
    'At these limits the gateway needs more memory than it has, so that the system may kill it under load.',
    'Give the gateway more memory, or lower BUFFERED_BYTES_MAX, CONNECTIONS_MAX or WORKERS.'],
  ['no-memory-limit', ['bufferedBytesMax', 'connectionsMax', 'workers'],
    () => (hasMemoryLimit() ? undefined : 'low'),
    'No memory limit is set for this process: under load or a leak it competes with other programs of the machine.',
    'Set a limit: `memory` of the container, or MemoryMax of the systemd unit. docs/operating.md (Sizing) says how high.'],
  ['docs-public', ['docs', 'host'],
    ({ settings, isOpen }) => (settings.docs && isOpen ? 'low' : undefined),
    'Everybody who can reach this address can read the API reference and send calls from it, even without a token.',
    'Set DOCS=false, and publish the output of the command openapi where your developers are.'],
  ['leading-ids', ['itemIdParsing'],
    ({ settings }) => (settings.itemIdParsing === 'leading' ? 'low' : undefined),
    'DELETE /api/work-items/12abc deletes item 12, as parseInt of JavaScript reads it. Other languages report an error.',
    'Set ITEM_ID_PARSING=whole, unless clients in JavaScript depend on the other rule.'],
  ['plain-backend', ['backendUrl'],
    ({ settings: { backendUrl } }) => (backendUrl.protocol === 'http:' && !isThisMachine(backendUrl.hostname) ? 'low' : undefined),
    'Work items cross the network between gateway and backend unencrypted, and no certificate proves which backend answers.',
    'Use https in BACKEND_URL, unless only gateway and backend have access to this network.'],
  ['no-scopes', ['authIssuer', 'authScopes'],
    ({ settings }) => (settings.authIssuer !== '' && settings.authScopes.length === 0 ? 'low' : undefined),
    'Every valid token may create, update and delete work items.',
    'Set AUTH_SCOPES, if some clients may only read.'],
  ['rate-limit-fails-open', ['rateLimitFallback'],
    ({ settings }) => (settings.rateLimit !== '' && settings.rateLimitFallback === 'allow' ? 'low' : undefined),
    'While Redis is down, requests are not limited.',
    'Set RATE_LIMIT_FALLBACK=local.'],
];

/** Returns the risks of `settings`, the most severe first. */
export function findRisks(settings: Settings): Risk[] {
  const facts: Facts = {
    settings,
    isOpen: !isThisMachine(settings.host.toLowerCase()),
    knowsClients: settings.authIssuer !== '' || settings.tlsClientCaFile !== '',
    isBehindProxy: settings.trustedProxies.length > 0 && !settings.trustedProxies.some(isWide),
  };
  const risks = rules.flatMap(([code, names, severityOf, risk, advice]) => {
    const severity = severityOf(facts);
    const shown = names.map((name) => [variableOf(name), showValue(name, settings) || null] as const);
    return severity === undefined ? [] : [{ code, severity, settings: Object.fromEntries(shown), risk, advice }];
  });
  return severities.toReversed().flatMap((severity) => risks.filter((each) => each.severity === severity));
}

// True for a range that has addresses of several owners: larger than 10.0.0.0/8 or fc00::/7, the largest private ranges.
// An IPv4 range may be written as IPv6 [RFC 4291, 2.5.5.2].
function isWide(range: string): boolean {
  const [address = '', bits] = range.split('/');
  if (bits === undefined) return false;
  const isMapped = /^[0:]*:ffff:/i.test(address);
  return Number(bits) < (isMapped ? 104 : address.includes(':') ? 7 : 8);
}

function hasMemoryLimit(): boolean {
  const limit = process.constrainedMemory();
  return limit > 0 && limit <= readMemoryLimit();
}
