// The Kubernetes manifests: a strict decoder accepts each of them, and their ports, settings, time limits and alerts fit
// the gateway.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { globSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { describe, test } from 'node:test';
import { parse, parseAllDocuments } from 'yaml';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import { settingNames, variableOf } from '../../packages/command/settings/settings.ts';
import { findWrongFields, validate, type Manifest } from './manifests.ts';
import { neededWithConnections } from './needed-memory.ts';

const root = resolve(import.meta.dirname, '../..');
const folder = join(root, 'deploy/kubernetes');

interface Kustomization {
  readonly kind: 'Kustomization' | 'Component';
  readonly resources?: readonly string[];
  readonly components?: readonly string[];
  readonly patches?: readonly { readonly path?: string; readonly patch?: string }[];
  readonly configMapGenerator?: readonly { readonly literals: readonly string[] }[];
}
interface Container {
  readonly name: string;
  readonly env: readonly { readonly name: string; readonly value?: string }[];
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
  readonly resources: { readonly limits: Record<string, string> };
  readonly securityContext: object;
  readonly [probe: `${string}Probe`]: {
    readonly httpGet: { readonly port: string; readonly path: string };
    readonly failureThreshold: number;
  };
}
interface Deployment extends Manifest {
  readonly spec: {
    readonly replicas?: number;
    readonly template: {
      readonly spec: {
        readonly terminationGracePeriodSeconds: number;
        readonly securityContext: object;
        readonly containers: readonly Container[];
      };
    };
  };
}
interface ServiceManifest extends Manifest {
  readonly spec: {
    readonly selector: Readonly<Record<string, string>>;
    readonly ports: readonly { readonly name: string; readonly port: number; readonly targetPort: string }[];
  };
}
interface Autoscaler extends Manifest {
  readonly spec: {
    readonly minReplicas: number;
    readonly maxReplicas: number;
    readonly metrics: readonly { readonly resource: { readonly target: object } }[];
  };
}
interface ConfigMap extends Manifest {
  readonly data: Readonly<Record<string, string>>;
}

function readDocuments(text: string): Manifest[] {
  // The text must mean the same in YAML 1.1, which kubectl reads, and in 1.2.
  const [older, newer] = (['1.1', '1.2'] as const).map((version) =>
    parseAllDocuments(text, { version }).map((document) => document.toJS() as Manifest),
  );
  assert.deepEqual(older, newer, 'the text means the same by the rules of YAML 1.1');
  return newer ?? [];
}

const kustomizations = globSync('*/kustomization.yaml', { cwd: folder }).map((path) => ({
  name: dirname(path),
  content: parse(readFileSync(join(folder, path), 'utf8')) as Kustomization,
}));
const filesIn = (pick: (content: Kustomization) => readonly string[]): string[] =>
  kustomizations.flatMap(({ name, content }) =>
    pick(content)
      .filter((path) => path.endsWith('.yaml'))
      .map((path) => join(name, path)),
  );
const resourceFiles = filesIn(({ resources = [] }) => resources);
const patchFiles = filesIn(({ patches = [] }) => patches.flatMap(({ path }) => path ?? []));
const readAll = (paths: readonly string[]): Manifest[] =>
  paths.flatMap((path) => readDocuments(readFileSync(join(folder, path), 'utf8')));
const resources = readAll(resourceFiles);

function resourceOf(kind: string, name = 'work-item-gateway'): Manifest {
  const found = resources.find((each) => each.kind === kind && each.metadata.name === name);
  assert.ok(found, `${kind} ${name}`);
  return found;
}

const variables = settingNames.map(variableOf);
const deployment = resourceOf('Deployment') as Deployment;
const [gateway] = deployment.spec.template.spec.containers;
assert.ok(gateway);
const memoryLimit = gateway.resources.limits['memory'] ?? '';

/** The settings in the ConfigMaps of the base and of the kustomizations `names`. */
function settingsIn(...names: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    ['base', ...names]
      .flatMap((name) => kustomizations.find((each) => each.name === name)?.content.configMapGenerator ?? [])
      .flatMap(({ literals }) => literals)
      .map((literal) => literal.split(/=(.*)/s).slice(0, 2)),
  ) as Record<string, string>;
}

describe('the Kubernetes manifests', () => {
  test('every file is part of a kustomization', () => {
    const used = [...resourceFiles, ...patchFiles].toSorted();
    const there = globSync('*/*.yaml', { cwd: folder }).filter((path) => basename(path) !== 'kustomization.yaml');
    assert.deepEqual(used, there.toSorted());
  });

  test('the strict decoder accepts each manifest', async () => {
    assert.deepEqual(findWrongFields(resources), []);
    assert.deepEqual(findWrongFields(withoutDirectives(readAll(patchFiles)), true), []);
    for (const manifest of resources) await validate(manifest);
  });

  test('the strict decoder refuses an unknown field', () => {
    const misspelt = JSON.stringify(deployment).replaceAll('"livenessProbe"', '"livenesProbe"');
    assert.match(String(findWrongFields([JSON.parse(misspelt) as Manifest])), /livenesProbe.*does not exist/);
  });
});

// Removes the directives of a strategic merge.
function withoutDirectives(manifests: Manifest[]): Manifest[] {
  return JSON.parse(JSON.stringify(manifests).replaceAll(/,"\$patch":"delete"/g, '')) as Manifest[];
}

describe('the output of kustomize', () => {
  const hasKubectl = spawnSync('kubectl', ['kustomize', '--help']).status === 0;
  const skip = !hasKubectl && 'kubectl is not installed, so nothing was rendered here';

  const rendered = new Map<string, Manifest[]>();
  function render(name: string): Manifest[] {
    const { status, stdout, stderr } = spawnSync('kubectl', ['kustomize', resolve(folder, name)], { encoding: 'utf8' });
    assert.equal(status, 0, stderr);
    const manifests = readDocuments(stdout);
    rendered.set(name, manifests);
    return manifests;
  }

  test('the strict decoder accepts each component with the base', { skip }, async () => {
    const components = kustomizations.filter(({ content }) => content.kind === 'Component');
    assert.equal(components.length, 4);
    const all = components.map(({ name }) => {
      const own = mkdtempSync(join(tmpdir(), 'kustomize-'));
      const from = (which: string): string => relative(realpathSync(own), join(folder, which));
      writeFileSync(
        join(own, 'kustomization.yaml'),
        `apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [${from('base')}]\ncomponents: [${from(name)}]\n`,
      );
      const manifests = render(own);
      rmSync(own, { recursive: true });
      const map = manifests.find(({ kind }) => kind === 'ConfigMap') as ConfigMap;
      assert.deepEqual(map.data, settingsIn(name));
      return manifests;
    });
    assert.deepEqual(findWrongFields(all.flat()), []);
    for (const manifest of all.flat()) await validate(manifest);
  });

  for (const { name, content } of kustomizations.filter((each) => each.content.kind === 'Kustomization')) {
    test(`the strict decoder accepts ${name}, which has the intended settings`, { skip }, async () => {
      const manifests = render(name);
      assert.deepEqual(findWrongFields(manifests), []);
      for (const manifest of manifests) await validate(manifest);
      const map = manifests.find(({ kind }) => kind === 'ConfigMap') as ConfigMap;
      const components = (content.components ?? []).map((path) => basename(path));
      assert.deepEqual(map.data, settingsIn(...components, name));
      const use = manifests.find(
        ({ kind, metadata }) => kind === 'Deployment' && metadata.name === 'work-item-gateway',
      );
      assert.ok(JSON.stringify(use).includes(`"configMapRef":{"name":"${map.metadata.name}"}`));
    });
  }

  test('production serves only https on port 443, with the files of the Secret', { skip }, () => {
    const manifests = rendered.get('production') ?? render('production');
    const service = manifests.find(
      ({ kind, metadata }) => kind === 'Service' && metadata.name === 'work-item-gateway',
    ) as ServiceManifest;
    assert.deepEqual(service.spec.ports, [{ name: 'clients', port: 443, targetPort: 'clients' }]);
    const [pod] = manifests.filter(({ kind }) => kind === 'Deployment') as Deployment[];
    const text = JSON.stringify(pod);
    const path = dirname(settingsIn('tls')['TLS_CERT_FILE'] ?? '');
    assert.ok(text.includes(`"volumeMounts":[{"mountPath":"${path}","name":"tls","readOnly":true}]`));
    assert.ok(text.includes('"secretName":"work-item-gateway-tls"'));
    assert.ok(text.includes('"image":"registry.example.com/work-item-gateway:0.1.0"'));
    const policy = JSON.stringify(manifests.find(({ kind }) => kind === 'NetworkPolicy'));
    assert.ok(policy.includes('"ports":[{"port":443}]'), 'the keys of the issuer can be fetched');
  });
});

describe('the manifests fit the gateway', () => {
  test('every variable is a setting with a valid value', () => {
    for (const { name, content } of kustomizations) {
      const own = (content.configMapGenerator ?? []).flatMap(({ literals }) => literals);
      for (const variable of own.map((literal) => literal.replace(/=.*/s, ''))) {
        assert.ok(variables.includes(variable), `${variable} of ${name} is a setting`);
      }
      const components = (content.components ?? []).map((path) => basename(path));
      // Throws for invalid settings; does not read the files of certificates.
      resolveSettings('serve', {}, settingsIn(...components, name), [], true);
    }
    const containers = (resources.filter(({ kind }) => kind === 'Deployment') as Deployment[]).flatMap(
      ({ spec }) => spec.template.spec.containers,
    );
    assert.equal(containers.length, 2);
    for (const { name } of containers.flatMap(({ env }) => env)) {
      assert.ok(variables.includes(name), `${name} is a setting`);
    }
  });

  test('pods listen on all IPv4 and IPv6 addresses', () => {
    const { HOST, ADMIN_HOST } = settingsIn();
    assert.deepEqual([HOST, ADMIN_HOST], ['::', '::']);
    const backend = (resourceOf('Deployment', 'work-item-backend') as Deployment).spec.template.spec.containers[0];
    assert.equal(backend?.env.find(({ name }) => name === 'EMBEDDED_BACKEND_HOST')?.value, '::');
  });

  test('a rule for all IPv4 addresses is a rule for all IPv6 addresses, too', () => {
    for (const path of globSync('*/*.yaml', { cwd: folder })) {
      const text = readFileSync(join(folder, path), 'utf8');
      assert.equal(text.includes('cidr: 0.0.0.0/0'), text.includes("cidr: '::/0'"), path);
    }
  });

  test('the grace period of a pod is longer than a shutdown of the gateway', () => {
    const { settings } = resolveSettings('serve', {}, settingsIn());
    const { terminationGracePeriodSeconds } = deployment.spec.template.spec;
    // After the drain, the stop takes at most 4 s.
    const stopS = 4;
    assert.ok(terminationGracePeriodSeconds > (settings.shutdownDelayMs + settings.shutdownTimeoutMs) / 1_000 + stopS);
    assert.ok(settings.shutdownDelayMs >= 3_000, 'load balancers detect the shutdown before the listener closes');
  });

  for (const names of [[], ['auth'], ['ingress'], ['tls'], ['tls', 'auth', 'prometheus', 'production']]) {
    test(`base${names.map((name) => ` + ${name}`).join('')}: the memory limit is above the memory that the settings allow`, () => {
      const variablesIn = settingsIn(...names);
      assert.ok(variablesIn['CONNECTIONS_MAX'] !== undefined);
      const { settings } = resolveSettings('serve', {}, variablesIn, [], true);
      const [limit] = names
        .filter((name) => patchFiles.includes(`${name}/deployment.yaml`))
        .flatMap((name) => readAll([`${name}/deployment.yaml`]) as Deployment[])
        .map(({ spec }) => spec.template.spec.containers[0]?.resources.limits['memory']);
      const bytes = Number(/^(\d+)Mi$/.exec(limit ?? memoryLimit)?.[1]) * 2 ** 20;
      assert.ok(bytes > neededWithConnections(settings), `${bytes} bytes`);
    });
  }

  test('the CPU has no limit, and the target of the autoscaler is the load per pod of docs/fleet.md', () => {
    assert.equal(gateway.resources.limits['cpu'], undefined);
    const { spec } = resourceOf('HorizontalPodAutoscaler') as Autoscaler;
    const [metric] = spec.metrics;
    assert.deepEqual(metric?.resource.target, { type: 'AverageValue', averageValue: '700m' });
    const sizing = readFileSync(new URL('../../docs/fleet.md', import.meta.url), 'utf8');
    assert.match(sizing, /no core above 70 %/);
    // The columns are for 1,000, 10,000, 100,000 and 1,000,000 calls a second.
    const [, row = ''] = /^\| gateway processes, one of them spare +\|(.*)\|$/m.exec(sizing) ?? [];
    const [least = NaN, , most = NaN] = row.split('|').map(Number);
    assert.equal(spec.minReplicas, least);
    assert.ok(most <= spec.maxReplicas, `${most} pods`);
  });

  test('one late answer of a probe does not remove a pod', () =>
    assert.ok(Number(gateway['readinessProbe']?.failureThreshold) > 1));

  test('with the Ingress, the gateway trusts few proxies, not every pod', () => {
    const { settings } = resolveSettings('serve', {}, settingsIn('ingress'));
    const [, bits] = String(settings.trustedProxies).split('/');
    assert.ok(Number(bits) >= 28, String(settings.trustedProxies));
  });

  test('ports are the same as in the settings, and probes use paths of the admin listener', () => {
    const settings = settingsIn();
    assert.deepEqual(gateway.ports, [
      { name: 'clients', containerPort: Number(settings['PORT']) },
      { name: 'admin', containerPort: Number(settings['ADMIN_PORT']) },
    ]);
    for (const [probe, path] of [
      ['startupProbe', '/livez'],
      ['livenessProbe', '/livez'],
      ['readinessProbe', '/readyz'],
    ] as const) {
      assert.deepEqual(gateway[probe]?.httpGet, { port: 'admin', path });
    }
    for (const name of ['work-item-gateway', 'work-item-gateway-admin']) {
      const { spec } = resourceOf('Service', name) as ServiceManifest;
      assert.deepEqual(spec.selector, { 'app.kubernetes.io/name': 'work-item-gateway' });
      assert.ok(spec.ports.every(({ targetPort }) => gateway.ports.some((port) => port.name === targetPort)));
    }
  });

  test('the Ingress routes to the Service, and its HAProxy lines are also in deploy/haproxy.cfg', () => {
    const { metadata, spec } = resourceOf('Ingress') as Manifest & { spec: { rules: object } };
    const { annotations = {} } = metadata;
    const known = readFileSync(join(root, 'deploy/haproxy.cfg'), 'utf8')
      .split('\n')
      .map((line) => line.trim());
    const lines = annotations['haproxy.org/backend-config-snippet']?.trim().split('\n') ?? [];
    const unknown = lines.filter((line) => !known.includes(line));
    assert.deepEqual(unknown, []);
    assert.ok(lines.includes('retry-on conn-failure') && lines.includes('http-reuse safe'));
    assert.ok(known.includes('option forwardfor') && annotations['haproxy.org/forwarded-for'] === 'true');
    const { settings } = resolveSettings('serve', {}, settingsIn());
    assert.ok(Number(annotations['haproxy.org/pod-maxconn']) < settings.inFlightMax);
    const service = { name: 'work-item-gateway', port: { name: 'clients' } };
    const paths = [{ path: '/api/work-items', pathType: 'Prefix', backend: { service } }];
    assert.deepEqual(spec.rules, [{ host: 'items.example.com', http: { paths } }]);
  });

  test('only the autoscaler sets the number of pods', () => {
    assert.equal(deployment.spec.replicas, undefined);
    resourceOf('HorizontalPodAutoscaler');
    resourceOf('PodDisruptionBudget');
  });

  test('no container may write files, be root or gain rights', () => {
    for (const { spec } of resources.filter(({ kind }) => kind === 'Deployment') as Deployment[]) {
      const { securityContext, containers } = spec.template.spec;
      assert.partialDeepStrictEqual(securityContext, {
        runAsNonRoot: true,
        runAsUser: 65_532,
        seccompProfile: { type: 'RuntimeDefault' },
      });
      for (const container of containers) {
        assert.deepEqual(container.securityContext, {
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        });
      }
    }
  });

  test('the alerts are those of deploy/prometheus-alerts.yml, with the same job', () => {
    const alerts = parse(readFileSync(join(root, 'deploy/prometheus-alerts.yml'), 'utf8')) as object;
    const rule = resourceOf('PrometheusRule') as Manifest & { spec: object };
    assert.deepEqual(rule.spec, alerts, 'npm run rules has not been run');
    const { spec } = resourceOf('ServiceMonitor') as Manifest & { spec: { jobLabel: string; selector: object } };
    const { labels } = resourceOf('Service', 'work-item-gateway-admin').metadata;
    assert.deepEqual(spec.selector, { matchLabels: labels });
    assert.equal(labels?.[spec.jobLabel], 'work-item-gateway');
  });
});
