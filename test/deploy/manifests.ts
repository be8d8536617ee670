// Checks a Kubernetes object in two ways. The TypeScript types of its kind reject unknown fields. The schema of its
// kind checks required fields and values.

import { resolve } from 'node:path';
import ts from 'typescript';

export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string } & Partial<
    Record<'labels' | 'annotations', Readonly<Record<string, string>>>
  >;
}

interface Model {
  validate(): void;
}

/** For each kind in use, the module with its type and its schema. */
const modules: Readonly<Record<string, string>> = {
  'v1 ConfigMap': 'kubernetes-models/v1',
  'v1 Namespace': 'kubernetes-models/v1',
  'v1 Service': 'kubernetes-models/v1',
  'apps/v1 Deployment': 'kubernetes-models/apps/v1',
  'autoscaling/v2 HorizontalPodAutoscaler': 'kubernetes-models/autoscaling/v2',
  'policy/v1 PodDisruptionBudget': 'kubernetes-models/policy/v1',
  'networking.k8s.io/v1 Ingress': 'kubernetes-models/networking.k8s.io/v1',
  'networking.k8s.io/v1 NetworkPolicy': 'kubernetes-models/networking.k8s.io/v1',
  'monitoring.coreos.com/v1 ServiceMonitor': '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1',
  'monitoring.coreos.com/v1 PrometheusRule': '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1',
};

function moduleOf({ apiVersion, kind }: Manifest): string {
  const found = modules[`${apiVersion} ${kind}`];
  if (found === undefined) throw new Error(`${apiVersion} ${kind} is an unknown kind`);
  return found;
}

/** The type errors of `manifests`; a patch may lack any field. */
export function findWrongFields(manifests: readonly Manifest[], isPatch = false): string[] {
  const partial = isPatch
    ? 'type Whole<T> = T extends readonly (infer E)[] ? Whole<E>[] : T extends object ? { [K in keyof T]?: Whole<T[K]> } : T;\n'
    : 'type Whole<T> = T;\n';
  const lines = manifests.map(
    (manifest, index) =>
      `export const m${index}: Whole<import('${moduleOf(manifest)}').I${manifest.kind}> = ${JSON.stringify(manifest)};\n`,
  );
  // TypeScript resolves packages from `path`. The file exists in memory only.
  const path = resolve(import.meta.dirname, 'of-manifests.ts');
  const text = partial + lines.join('');
  const options: ts.CompilerOptions = {
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    types: [],
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    target: ts.ScriptTarget.ES2022,
  };
  const host = ts.createCompilerHost(options);
  const fileExists = host.fileExists.bind(host);
  const getSourceFile = host.getSourceFile.bind(host);
  host.fileExists = (name) => name === path || fileExists(name);
  host.getSourceFile = (name, version, ...others) =>
    name === path ? ts.createSourceFile(name, text, version) : getSourceFile(name, version, ...others);
  const program = ts.createProgram([path], options, host);
  return ts.getPreEmitDiagnostics(program).map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, ' '));
}

/** Checks a complete manifest by its schema. Rejects with the errors. */
export async function validate(manifest: Manifest): Promise<void> {
  const models = (await import(moduleOf(manifest))) as Record<string, new (data: Manifest) => Model>;
  const Kind = models[manifest.kind];
  if (Kind === undefined) throw new Error(`there is no schema of ${manifest.kind}`);
  new Kind(manifest).validate();
}
