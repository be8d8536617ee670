import { NestFactory } from '@nestjs/core';
import { createNodeHandler } from 'work-item-gateway/node';
import { AppModule } from './app.module.js';

const app = await NestFactory.create(AppModule);
app.use(createNodeHandler({ backendUrl: process.env.BACKEND_URL ?? 'http://localhost:5104', itemIdParsing: 'whole' }));
await app.listen(process.env.PORT ?? 3000);
console.log(await app.getUrl());
