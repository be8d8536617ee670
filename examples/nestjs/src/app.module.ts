import { Controller, Get, Module } from '@nestjs/common';

@Controller()
class AppController {
  @Get()
  where(): string {
    return 'Work items are at /api/work-items';
  }
}

@Module({ controllers: [AppController] })
export class AppModule {}
