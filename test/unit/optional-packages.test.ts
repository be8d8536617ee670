// Optional packages: a setting that needs a missing one fails the start.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findMissingPackages, isInstalled } from '../../packages/command/settings/optional-packages.ts';

const nameOf = (name: string) => name.toUpperCase();
const wanted = { otelExporterOtlpEndpoint: 'http://localhost:4318', logFormat: 'pretty' };

test('installed packages and unused ones are no problem', () => {
  assert.deepEqual(
    findMissingPackages(wanted, nameOf, () => true),
    [],
  );
  assert.deepEqual(
    findMissingPackages({ otelExporterOtlpEndpoint: '', logFormat: 'auto' }, nameOf, () => false),
    [],
  );
});

test('a problem for each setting names the packages to install', () => {
  assert.deepEqual(
    findMissingPackages(wanted, nameOf, (name) => name === '@opentelemetry/api'),
    [
      'OTELEXPORTEROTLPENDPOINT needs packages that are not installed: run `npm install @opentelemetry/core @opentelemetry/exporter-trace-otlp-proto @opentelemetry/resources @opentelemetry/sdk-trace` where work-item-gateway is installed, or leave the setting out',
      'LOGFORMAT needs a package that is not installed: run `npm install pino-pretty` where work-item-gateway is installed, or leave the setting out',
    ],
  );
});

test('a clone of the repository has all optional packages', () => {
  assert.deepEqual(findMissingPackages(wanted, nameOf), []);
  assert.equal(isInstalled('@opentelemetry/api'), true);
  assert.equal(isInstalled('no-such-package-of-ours'), false);
});
