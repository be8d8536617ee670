import { fileURLToPath, URL } from 'node:url';

export default {
  distDir: 'build',
  compress: false,
  turbopack: { root: fileURLToPath(new URL('../../../', import.meta.url)) },
};
