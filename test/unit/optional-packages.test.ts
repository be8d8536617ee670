// Packages that only some want: a setting that needs one is a problem at the start where it is not installed.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findMissingPackages, isInstalled } from '../../packages/command/settings/optional-packages.ts';

const nameOf = (name: string) => name.toUpperCase();
const wanted = { otelExporterOtlpEndpoint: 'http://localhost:4318', logFormat: 'pretty' };

test('what is installed is no problem, and neither is what nobody wants', () => {
  assert.deepEqual(
    findMissingPackages(wanted, nameOf, () => true),
    [],
  );
  assert.deepEqual(
    findMissingPackages({ otelExporterOtlpEndpoint: '', logFormat: 'auto' }, nameOf, () => false),
    [],
  );
});

test('one problem for each setting names what to install', () => {
  assert.deepEqual(
    findMissingPackages(wanted, nameOf, (name) => name === '@opentelemetry/api'),
    [
      'OTELEXPORTEROTLPENDPOINT needs packages that are not installed: run `npm install @opentelemetry/core @opentelemetry/exporter-trace-otlp-proto @opentelemetry/resources @opentelemetry/sdk-trace` where work-item-gateway is installed, or leave the setting out',
      'LOGFORMAT needs a package that is not installed: run `npm install pino-pretty` where work-item-gateway is installed, or leave the setting out',
    ],
  );
});

test('a clone has all of them', () => {
  assert.deepEqual(findMissingPackages(wanted, nameOf), []);
  assert.equal(isInstalled('@opentelemetry/api'), true);
  assert.equal(isInstalled('no-such-package-of-ours'), false);
});
