// Optional packages: a setting that needs a missing package fails the start.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findMissingPackages, isInstalled } from '../../packages/command/settings/resolve.ts';

const wanted = { otelExporterOtlpEndpoint: 'http://localhost:4318', logFormat: 'pretty' } as const;

test('packages that are installed, or that no setting needs, are not reported; a clone of the repository has all packages', () => {
  const unused = { otelExporterOtlpEndpoint: '', logFormat: 'auto' } as const;
  const missing = [findMissingPackages(wanted, () => true), findMissingPackages(unused, () => false)];
  assert.deepEqual([...missing, findMissingPackages(wanted)], [[], [], []]);
  assert.equal(isInstalled('no-such-package-of-ours'), false);
});

test('each setting that lacks packages gets one message, which lists the packages to install', () => {
  assert.deepEqual(
    findMissingPackages(wanted, (name) => name === '@opentelemetry/api'),
    [
      'OTEL_EXPORTER_OTLP_ENDPOINT needs packages that are not installed: run `npm install @opentelemetry/core @opentelemetry/exporter-trace-otlp-proto @opentelemetry/resources @opentelemetry/sdk-trace` where work-item-gateway is installed, or leave the setting out',
      'LOG_FORMAT needs a package that is not installed: run `npm install pino-pretty` where work-item-gateway is installed, or leave the setting out',
    ],
  );
});
