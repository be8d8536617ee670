// Writes the PrometheusRule of the Prometheus operator from the alert rules of Prometheus: the same groups, one file.

import { readFileSync, writeFileSync } from 'node:fs';

const from = 'deploy/prometheus-alerts.yml';
const to = 'deploy/kubernetes/prometheus/prometheus-rule.yaml';
const root = new URL('../', import.meta.url);
const text = readFileSync(new URL(from, root), 'utf8');
const groups = text.slice(text.indexOf('\ngroups:') + 1);
writeFileSync(
  new URL(to, root),
  `# Written by \`npm run rules\` from ${from}: changes belong there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: work-item-gateway
spec:
${groups.replace(/^(?=.)/gm, '  ')}`,
);
