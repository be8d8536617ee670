import { NextResponse } from 'next/server';

export const dynamic = 'force-dynamic';

const backend = `${process.env.BACKEND_URL}/api/WorkItem`;
const headers = { 'Content-Type': 'application/json' };

export async function GET() {
  try {
    const response = await fetch(backend, { headers, cache: 'no-store' });
    if (!response.ok) throw new Error(`Backend responded with status ${response.status}`);
    const data = await response.json();
    return NextResponse.json(data);
  } catch {
    return NextResponse.json({ error: 'Failed to fetch work items' }, { status: 500 });
  }
}

export async function POST(request) {
  try {
    const body = await request.json();
    const response = await fetch(backend, { method: 'POST', headers, body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`Backend responded with status ${response.status}`);
    const data = await response.json();
    return NextResponse.json(data, { status: 201 });
  } catch {
    return NextResponse.json({ error: 'Failed to create work item' }, { status: 500 });
  }
}
