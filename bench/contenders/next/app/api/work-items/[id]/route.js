import { NextResponse } from 'next/server';

export const dynamic = 'force-dynamic';

const backend = `${process.env.BACKEND_URL}/api/WorkItem`;
const headers = { 'Content-Type': 'application/json' };

export async function GET(_request, { params }) {
  const id = Number.parseInt((await params).id, 10);
  if (Number.isNaN(id)) return NextResponse.json({ error: 'Invalid ID format' }, { status: 400 });
  try {
    const response = await fetch(`${backend}/${id}`, { headers, cache: 'no-store' });
    if (response.status === 404) return NextResponse.json({ error: 'Work item not found' }, { status: 404 });
    if (!response.ok) throw new Error(`Backend responded with status ${response.status}`);
    const data = await response.json();
    return NextResponse.json(data);
  } catch {
    return NextResponse.json({ error: 'Failed to fetch work item' }, { status: 500 });
  }
}

export async function PUT(request, { params }) {
  const id = Number.parseInt((await params).id, 10);
  if (Number.isNaN(id)) return NextResponse.json({ error: 'Invalid ID format' }, { status: 400 });
  try {
    const body = await request.json();
    const response = await fetch(`${backend}/${id}`, { method: 'PUT', headers, body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`Backend responded with status ${response.status}`);
    return NextResponse.json({ success: true });
  } catch {
    return NextResponse.json({ error: 'Failed to update work item' }, { status: 500 });
  }
}

export async function DELETE(_request, { params }) {
  const id = Number.parseInt((await params).id, 10);
  if (Number.isNaN(id)) return NextResponse.json({ error: 'Invalid ID format' }, { status: 400 });
  try {
    const response = await fetch(`${backend}/${id}`, { method: 'DELETE', headers });
    if (!response.ok) throw new Error(`Backend responded with status ${response.status}`);
    return NextResponse.json({ success: true });
  } catch {
    return NextResponse.json({ error: 'Failed to delete work item' }, { status: 500 });
  }
}
