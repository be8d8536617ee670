// The Kubernetes manifests: a strict decoder accepts each of them, and their ports, settings, time limits and alerts fit
// the gateway.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { globSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { describe, test } from 'node:test';
import { parse, parseAllDocuments } from 'yaml';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import { settingNames, variableOf } from '../../packages/command/settings/settings.ts';
import { useFolder } from '../helpers/suites.ts';
import { findWrongFields, validate, type Manifest } from './manifests.ts';
import { neededWithConnections } from './needed-memory.ts';

const root = resolve(import.meta.dirname, '../..');
const folder = join(root, 'deploy/kubernetes');
const read = (path: string): string => readFileSync(join(root, path), 'utf8');

interface Kustomization {
  readonly kind: 'Kustomization' | 'Component';
  readonly resources?: readonly string[];
  readonly components?: readonly string[];
  readonly patches?: readonly { readonly path?: string }[];
  readonly configMapGenerator?: readonly { readonly literals: readonly string[] }[];
}
interface Container {
  readonly env: readonly { readonly name: string; readonly value?: string }[];
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
  readonly resources: { readonly limits: Record<string, string> };
  readonly securityContext: object;
  readonly [probe: `${string}Probe`]: { readonly httpGet: object; readonly failureThreshold: number };
}
/** The fields that the tests read, of all kinds together. */
interface AnyManifest extends Manifest {
  readonly data: Readonly<Record<string, string>>;
  readonly spec: {
    readonly replicas?: number;
    readonly template: {
      readonly spec: {
        readonly terminationGracePeriodSeconds: number;
        readonly securityContext: object;
        readonly containers: readonly [Container];
      };
    };
    readonly selector: object;
    readonly ports: readonly { readonly targetPort: string }[];
    readonly minReplicas: number;
    readonly maxReplicas: number;
    readonly metrics: readonly { readonly resource: { readonly target: object } }[];
    readonly rules: object;
    readonly jobLabel: string;
  };
}

function readDocuments(text: string): AnyManifest[] {
  // The text must mean the same in YAML 1.1, which kubectl reads, and in 1.2.
  const [older, newer = []] = (['1.1', '1.2'] as const).map((version) =>
    parseAllDocuments(text, { version }).map((document) => document.toJS() as AnyManifest),
  );
  assert.deepEqual(older, newer, 'the text means the same by the rules of YAML 1.1');
  return newer;
}

const texts = Object.fromEntries(
  globSync('*/*.yaml', { cwd: folder }).map((path) => [path, read(`deploy/kubernetes/${path}`)]),
);
const kustomizations = Object.entries(texts)
  .filter(([path]) => basename(path) === 'kustomization.yaml')
  .map(([path, text]) => ({ name: dirname(path), content: parse(text) as Kustomization }));
const pathsIn = (pick: (content: Kustomization) => readonly string[]): string[] =>
  kustomizations
    .flatMap(({ name, content }) => pick(content).map((path) => join(name, path)))
    .filter((path) => path in texts);
const resourcePaths = pathsIn(({ resources = [] }) => resources);
const patchPaths = pathsIn(({ patches = [] }) => patches.flatMap(({ path }) => path ?? []));
const readAll = (paths: readonly string[]) => paths.flatMap((path) => readDocuments(texts[path] ?? ''));
const resources = readAll(resourcePaths);

function find(kind: string, among: readonly AnyManifest[] = resources, name = 'work-item-gateway'): AnyManifest {
  return (
    among.find((each) => each.kind === kind && each.metadata.name.startsWith(name)) ?? assert.fail(`${kind} ${name}`)
  );
}

const variables = settingNames.map(variableOf);
const { replicas, template } = find('Deployment').spec;
const [gateway] = template.spec.containers;

/** The settings in the ConfigMaps of the base and of the kustomizations `names`. */
function settingsIn(...names: readonly string[]): Record<string, string> {
  const literals = ['base', ...names]
    .flatMap((name) => kustomizations.find((each) => each.name === name)?.content.configMapGenerator ?? [])
    .flatMap((each) => each.literals);
  return Object.fromEntries(literals.map((literal) => literal.split(/=(.*)/s).slice(0, 2))) as Record<string, string>;
}

const base = resolveSettings('serve', {}, settingsIn()).settings;

test('the strict decoder accepts each manifest and each patch, but no unknown field; each file is part of a kustomization', async () => {
  const used = [...resourcePaths, ...patchPaths, ...kustomizations.map(({ name }) => `${name}/kustomization.yaml`)];
  assert.deepEqual(used.toSorted(), Object.keys(texts).toSorted());
  for (const manifest of resources) await validate(manifest);
  const misspelt = JSON.stringify(find('Deployment')).replaceAll('"livenessProbe"', '"livenesProbe"');
  const [problem, ...others] = findWrongFields([...resources, JSON.parse(misspelt) as Manifest]);
  assert.match(problem ?? '', /livenesProbe.*does not exist/);
  assert.deepEqual(others, []);
  // Without the directives of a strategic merge.
  const patches = JSON.stringify(readAll(patchPaths)).replaceAll(/,"\$patch":"delete"/g, '');
  assert.deepEqual(findWrongFields(JSON.parse(patches) as Manifest[], true), []);
});

describe('the output of kustomize', () => {
  const hasKubectl = spawnSync('kubectl', ['kustomize', '--help']).status === 0;
  const skip = !hasKubectl && 'kubectl is not installed, so nothing was rendered here';
  const own = useFolder();

  function render(name: string): AnyManifest[] {
    const { status, stdout, stderr } = spawnSync('kubectl', ['kustomize', resolve(folder, name)], { encoding: 'utf8' });
    assert.equal(status, 0, stderr);
    return readDocuments(stdout);
  }

  test('the strict decoder accepts it, and it has the intended settings', { skip }, async () => {
    const from = (which: string): string => relative(realpathSync(own), join(folder, which));
    assert.equal(kustomizations.filter(({ content }) => content.kind === 'Component').length, 4);
    const all = kustomizations.flatMap(({ name, content: { kind, components = [] } }) => {
      writeFileSync(
        join(own, 'kustomization.yaml'),
        `apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [${from('base')}]\ncomponents: [${from(name)}]\n`,
      );
      const manifests = render(kind === 'Component' ? own : name);
      const { data, metadata } = find('ConfigMap', manifests);
      assert.deepEqual(data, settingsIn(...components.map((path) => basename(path)), name));
      assert.ok(JSON.stringify(find('Deployment', manifests)).includes(`"configMapRef":{"name":"${metadata.name}"}`));
      return manifests;
    });
    assert.deepEqual(findWrongFields(all), []);
    for (const manifest of all) await validate(manifest);
  });

  test('production serves only https on port 443, with the files of the Secret', { skip }, () => {
    const manifests = render('production');
    assert.deepEqual(find('Service', manifests).spec.ports, [{ name: 'clients', port: 443, targetPort: 'clients' }]);
    const [pod, policy] = ['Deployment', 'NetworkPolicy'].map((kind) => JSON.stringify(find(kind, manifests)));
    const path = dirname(settingsIn('tls')['TLS_CERT_FILE'] ?? '');
    for (const part of [
      `"volumeMounts":[{"mountPath":"${path}","name":"tls","readOnly":true}]`,
      '"secretName":"work-item-gateway-tls"',
      '"image":"registry.example.com/work-item-gateway:0.1.0"',
    ])
      assert.ok(pod?.includes(part), part);
    assert.ok(policy?.includes('"ports":[{"port":443}]'), 'the keys of the issuer can be fetched');
  });
});

describe('the manifests fit the gateway', () => {
  test('every variable is a setting with a valid value, and pods listen on all IPv4 and IPv6 addresses', () => {
    for (const { name, content } of kustomizations) {
      const components = (content.components ?? []).map((path) => basename(path));
      // Throws for invalid settings; does not read the files of certificates.
      resolveSettings('serve', {}, settingsIn(...components, name), [], true);
      for (const variable of Object.keys(settingsIn(name))) assert.ok(variables.includes(variable), variable);
    }
    const [backend] = find('Deployment', resources, 'work-item-backend').spec.template.spec.containers;
    for (const { name } of [...gateway.env, ...backend.env]) assert.ok(variables.includes(name), name);
    assert.deepEqual([base.host, base.adminHost], ['::', '::']);
    assert.equal(backend.env.find(({ name }) => name === 'EMBEDDED_BACKEND_HOST')?.value, '::');
    for (const [path, text] of Object.entries(texts)) {
      assert.equal(text.includes('cidr: 0.0.0.0/0'), text.includes("cidr: '::/0'"), path);
    }
  });

  test('a pod has time for a shutdown, and survives one late answer of a probe', () => {
    // After the drain, the stop takes at most 4 s.
    const stopS = 4;
    const shutdownS = (base.shutdownDelayMs + base.shutdownTimeoutMs) / 1_000 + stopS;
    assert.ok(template.spec.terminationGracePeriodSeconds > shutdownS);
    assert.ok(base.shutdownDelayMs >= 3_000, 'load balancers detect the shutdown before the listener closes');
    assert.ok(Number(gateway['readinessProbe']?.failureThreshold) > 1);
  });

  test('the memory limit is above the memory that the settings allow, whatever components are used', () => {
    for (const names of [[], ['auth'], ['ingress'], ['tls'], ['tls', 'auth', 'prometheus', 'production']]) {
      const variablesIn = settingsIn(...names);
      assert.ok(variablesIn['CONNECTIONS_MAX'] !== undefined);
      const { settings } = resolveSettings('serve', {}, variablesIn, [], true);
      const [patch] = readAll(
        names.map((name) => `${name}/deployment.yaml`).filter((path) => patchPaths.includes(path)),
      );
      const { resources: { limits } } = patch?.spec.template.spec.containers[0] ?? gateway; // prettier-ignore
      const bytes = Number(/^(\d+)Mi$/.exec(limits['memory'] ?? '')?.[1]) * 2 ** 20;
      assert.ok(bytes > neededWithConnections(settings), `${names.join()}: ${bytes} bytes`);
    }
  });

  test('only the autoscaler sets the number of pods: by the load per pod of docs/fleet.md, without a limit of the CPU', () => {
    assert.deepEqual([replicas, gateway.resources.limits['cpu']], [undefined, undefined]);
    find('PodDisruptionBudget');
    const { metrics, minReplicas, maxReplicas } = find('HorizontalPodAutoscaler').spec;
    assert.deepEqual(metrics[0]?.resource.target, { type: 'AverageValue', averageValue: '700m' });
    const sizing = read('docs/fleet.md');
    assert.match(sizing, /no core above 70 %/);
    // The columns are for 1,000, 10,000, 100,000 and 1,000,000 calls a second.
    const [, row = ''] = /^\| gateway processes, one of them spare +\|(.*)\|$/m.exec(sizing) ?? [];
    const [least = NaN, , most = NaN] = row.split('|').map(Number);
    assert.equal(minReplicas, least);
    assert.ok(most <= maxReplicas, `${most} pods`);
  });

  test('ports are the same as in the settings, and probes use paths of the admin listener', () => {
    assert.deepEqual(gateway.ports, [
      { name: 'clients', containerPort: base.port },
      { name: 'admin', containerPort: base.adminPort },
    ]);
    const probes = (['startupProbe', 'livenessProbe', 'readinessProbe'] as const).map((name) => gateway[name]?.httpGet);
    assert.deepEqual(
      probes,
      ['/livez', '/livez', '/readyz'].map((path) => ({ port: 'admin', path })),
    );
    for (const name of ['work-item-gateway', 'work-item-gateway-admin']) {
      const { selector, ports } = find('Service', resources, name).spec;
      assert.deepEqual(selector, { 'app.kubernetes.io/name': 'work-item-gateway' });
      assert.ok(ports.every(({ targetPort }) => gateway.ports.some((port) => port.name === targetPort)));
    }
  });

  test('the Ingress routes to the Service, its HAProxy lines are also in deploy/haproxy.cfg, and few proxies are trusted', () => {
    const { metadata: { annotations = {} }, spec } = find('Ingress'); // prettier-ignore
    const known = read('deploy/haproxy.cfg').split(/ *\n */);
    const lines = annotations['haproxy.org/backend-config-snippet']?.trim().split('\n') ?? [];
    const unknown = lines.filter((line) => !known.includes(line));
    assert.deepEqual(unknown, []);
    assert.ok(lines.includes('retry-on conn-failure') && lines.includes('http-reuse safe'));
    assert.ok(known.includes('option forwardfor') && annotations['haproxy.org/forwarded-for'] === 'true');
    assert.ok(Number(annotations['haproxy.org/pod-maxconn']) < base.inFlightMax);
    const service = { name: 'work-item-gateway', port: { name: 'clients' } };
    const paths = [{ path: '/api/work-items', pathType: 'Prefix', backend: { service } }];
    assert.deepEqual(spec.rules, [{ host: 'items.example.com', http: { paths } }]);
    const { trustedProxies } = resolveSettings('serve', {}, settingsIn('ingress')).settings;
    assert.ok(Number(String(trustedProxies).split('/')[1]) >= 28, 'not every pod');
  });

  test('no container may write files, be root or gain rights', () => {
    const pods = resources.filter(({ kind }) => kind === 'Deployment');
    assert.equal(pods.length, 2);
    for (const { securityContext, containers } of pods.map(({ spec }) => spec.template.spec)) {
      const seccompProfile = { type: 'RuntimeDefault' };
      assert.partialDeepStrictEqual(securityContext, { runAsNonRoot: true, runAsUser: 65_532, seccompProfile });
      assert.equal(containers.length, 1);
      assert.deepEqual(containers[0].securityContext, {
        ...{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } },
      });
    }
  });

  test('the alerts are those of deploy/prometheus-alerts.yml, with the same job', () => {
    assert.deepEqual(
      find('PrometheusRule').spec,
      parse(read('deploy/prometheus-alerts.yml')),
      '`npm run rules` was not run',
    );
    const { selector, jobLabel } = find('ServiceMonitor').spec;
    const { labels } = find('Service', resources, 'work-item-gateway-admin').metadata;
    assert.deepEqual([selector, labels?.[jobLabel]], [{ matchLabels: labels }, 'work-item-gateway']);
  });
});
