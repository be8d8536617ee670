import { NestFactory } from '@nestjs/core';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import { frameworkErrors, workItemGateway } from 'work-item-gateway';
import { AppModule } from './app.module.js';

const adapter = new FastifyAdapter({ frameworkErrors, return503OnClosing: false });
const app = await NestFactory.create<NestFastifyApplication>(AppModule, adapter);
await app.register(workItemGateway, {
  backendUrl: process.env.BACKEND_URL ?? 'http://localhost:5104',
  itemIdParsing: 'whole',
});
await app.listen(process.env.PORT ?? 3000);
console.log(await app.getUrl());
