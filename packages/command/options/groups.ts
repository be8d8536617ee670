// What settings stand together in the help and in docs/settings.md, in this order.

export const settingGroups = {
  listening: {
    title: 'Listening',
    introduction:
      'Clients and operators have a listener each. A port that is in use ends the start; no other one is tried.',
  },
  guards: {
    title: 'Who may call',
    introduction: 'Which names, proxies and pages of other sites are let in.',
  },
  cors: {
    title: 'Pages of other origins (CORS)',
    introduction:
      'Which browser applications may call. Without these settings none of another origin may; other clients need none of them. How to set them up is in [security.md](security.md#cors).',
  },
  tls: {
    title: 'TLS',
    introduction:
      'Certificates are PEM files. All of them are read again while the gateway runs, so that new ones need no restart: [security.md](security.md) has a worked example of each.',
  },
  rateLimit: {
    title: 'Rate limit',
    introduction:
      'How many requests each client may make; off unless `RATE_LIMIT` is set. How it counts is in [security.md](security.md#rate-limit).',
  },
  tokens: {
    title: 'Tokens',
    introduction:
      'Off until `AUTH_ISSUER` is set; then every operation needs a valid token. How they work together is in [security.md](security.md#tokens).',
  },
  processes: {
    title: 'Processes',
    introduction:
      'How many processes serve clients, and where settings can stand that are to be read again while they run. Workers are described in [operating.md](operating.md).',
  },
  backend: {
    title: 'Backend',
    introduction: 'Where the work items are, and how an id becomes part of the address.',
  },
  limits: {
    title: 'Limits',
    introduction: 'What clients and the backend can make the gateway hold.',
  },
  timeLimits: {
    title: 'Time limits',
    introduction:
      'All in milliseconds. The first three are towards the backend, the others towards clients. How they fit together with those of a load balancer and of the backend is in [operating.md](operating.md).',
  },
  pages: {
    title: 'Dashboard and API reference',
    introduction: 'What the gateway shows of itself, to operators and to clients.',
  },
  shutdown: { title: 'Shutdown', introduction: 'How the process ends.' },
  log: { title: 'Log', introduction: 'What goes to standard output.' },
  traces: {
    title: 'Traces',
    introduction:
      'Spans for an OpenTelemetry collector, in the standard variables. Off without an endpoint; [operating.md](operating.md#traces) has what is in them.',
  },
  embeddedBackend: {
    title: 'Embedded backend',
    introduction:
      'For the stand-in backend of development, demonstrations and tests: see [embedded-backend.md](embedded-backend.md).',
  },
} as const;

export type SettingGroup = keyof typeof settingGroups;
