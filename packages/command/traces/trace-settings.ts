// What OpenTelemetry's variables can be: the names of samplers, and the headers for a collector. Loads nothing.

import { splitList } from '../../core/text/lists.ts';
import { decodePercent } from '../../core/text/percent.ts';

export const samplerNames = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;

export type SamplerName = (typeof samplerNames)[number];

// A token (RFC 9110, 5.6.2), and what may stand in a value.
const nameForm = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$/;
const valueForm = /^[\t -~]*$/;

/**
 * The headers of `name=value,name=value`, percent-decoded (W3C Baggage, as OTEL_EXPORTER_OTLP_HEADERS has it); undefined where
 * it is none of that.
 */
export function parseExporterHeaders(text: string): Readonly<Record<string, string>> | undefined {
  const headers: Record<string, string> = {};
  for (const member of splitList(text)) {
    const at = member.indexOf('=');
    const [name, value] = [member.slice(0, Math.max(at, 0)), member.slice(at + 1)].map((each) =>
      decodePercent(each.trim()),
    );
    if (name === undefined || value === undefined || !nameForm.test(name) || !valueForm.test(value)) {
      return undefined;
    }
    headers[name.toLowerCase()] = value;
  }
  return headers;
}
