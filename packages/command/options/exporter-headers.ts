// Parses OTEL_EXPORTER_OTLP_HEADERS, the headers for a collector.

import { splitList } from '../../core/text/lists.ts';
import { decodePercent } from '../../core/text/percent.ts';

// A header name is a token (RFC 9110, 5.6.2). A value has printable ASCII and tabs.
const nameForm = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$/;
const valueForm = /^[\t -~]*$/;

/** Parses `name=value,name=value`, percent-decoded (W3C Baggage); undefined if `text` is invalid. */
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
