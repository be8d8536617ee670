// Writes the PrometheusRule for the Prometheus Operator, with the alert rules of deploy/prometheus-alerts.yml.

import { readFileSync, writeFileSync } from 'node:fs';

const from = 'deploy/prometheus-alerts.yml';
const to = 'deploy/kubernetes/prometheus/prometheus-rule.yaml';
const root = new URL('../', import.meta.url);
const text = readFileSync(new URL(from, root), 'utf8');
const groups = text.slice(text.indexOf('\ngroups:') + 1);
writeFileSync(
  new URL(to, root),
  `# Written by \`npm run rules\` from ${from}. Change that file instead.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: work-item-gateway
spec:
${groups.replace(/^(?=.)/gm, '  ')}`,
);
