// Combines the settings of traces, as OpenTelemetry's specification does: those for traces override those for all signals.

import { withoutEndSlashes } from '../../core/text/addresses.ts';
import type { Settings } from './settings.ts';

export interface Collector {
  readonly setting: 'otelExporterOtlpEndpoint' | 'otelExporterOtlpTracesEndpoint';
  readonly address: string;
  /** The URL for spans. */
  readonly url: string;
  readonly headers: string;
}

/** Returns the collector that spans are exported to; undefined if traces are off. */
export function findCollector({
  otelSdkDisabled = 'false',
  otelTracesExporter = ['otlp'],
  otelExporterOtlpEndpoint: base = '',
  otelExporterOtlpTracesEndpoint: own = '',
  otelExporterOtlpHeaders = '',
  otelExporterOtlpTracesHeaders = '',
}: Partial<Settings>): Collector | undefined {
  if (otelSdkDisabled === 'true' || !otelTracesExporter.includes('otlp')) return undefined;
  const headers = otelExporterOtlpTracesHeaders || otelExporterOtlpHeaders;
  if (own !== '') return { setting: 'otelExporterOtlpTracesEndpoint', address: own, url: own, headers };
  if (base === '') return undefined;
  const url = `${withoutEndSlashes(base)}/v1/traces`;
  return { setting: 'otelExporterOtlpEndpoint', address: base, url, headers };
}
