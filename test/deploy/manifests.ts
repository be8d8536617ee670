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

/** The kinds in use. */
const kinds = {
  v1: ['ConfigMap', 'Namespace', 'Service'],
  'apps/v1': ['Deployment'],
  'autoscaling/v2': ['HorizontalPodAutoscaler'],
  'policy/v1': ['PodDisruptionBudget'],
  'networking.k8s.io/v1': ['Ingress', 'NetworkPolicy'],
  'monitoring.coreos.com/v1': ['ServiceMonitor', 'PrometheusRule'],
};

/** The module with the type and the schema of a manifest's kind. */
function moduleOf({ apiVersion, kind }: Manifest): string {
  if (!(kinds as Record<string, string[]>)[apiVersion]?.includes(kind))
    throw new Error(`unknown: ${apiVersion} ${kind}`);
  const isOfPrometheus = apiVersion.startsWith('monitoring.');
  return `${isOfPrometheus ? '@kubernetes-models/prometheus-operator' : 'kubernetes-models'}/${apiVersion}`;
}

// Shared by all checks, because reading the packages' types takes seconds.
const sources = new Map<string, ts.SourceFile | undefined>();

/** The type errors of `manifests`; a patch may lack any field. */
export function findWrongFields(manifests: readonly Manifest[], isPatch = false): string[] {
  const partial =
    'T extends readonly (infer E)[] ? Whole<E>[] : T extends object ? { [K in keyof T]?: Whole<T[K]> } : T';
  const lines = manifests.map(
    (manifest, index) =>
      `export const m${index}: Whole<import('${moduleOf(manifest)}').I${manifest.kind}> = ${JSON.stringify(manifest)};\n`,
  );
  // TypeScript resolves packages from `path`. The file exists in memory only.
  const path = resolve(import.meta.dirname, 'of-manifests.ts');
  const text = `type Whole<T> = ${isPatch ? partial : 'T'};\n${lines.join('')}`;
  const options: ts.CompilerOptions = {
    ...{ strict: true, noEmit: true, skipLibCheck: true, types: [], target: ts.ScriptTarget.ES2022 },
    ...{ module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext },
  };
  const host = ts.createCompilerHost(options);
  const [fileExists, getSourceFile] = [host.fileExists.bind(host), host.getSourceFile.bind(host)];
  host.fileExists = (name) => name === path || fileExists(name);
  host.getSourceFile = (name, version) => {
    if (name === path) return ts.createSourceFile(name, text, version);
    if (!sources.has(name)) sources.set(name, getSourceFile(name, version));
    return sources.get(name);
  };
  const program = ts.createProgram([path], options, host);
  return ts.getPreEmitDiagnostics(program).map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, ' '));
}

/** Checks a complete manifest by its schema. Rejects with the errors. */
export async function validate(manifest: Manifest): Promise<void> {
  type Models = Record<string, new (data: Manifest) => { validate: () => void }>;
  const { [manifest.kind]: Model } = (await import(moduleOf(manifest))) as Models;
  if (Model === undefined) throw new Error(`there is no schema of ${manifest.kind}`);
  new Model(manifest).validate();
}
