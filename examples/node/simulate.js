// Two workers, one lock, one database: worker-a stalls past its lease, worker-b pays, and
// worker-a goes on. Three times: without a fence, with one, and with a look in time.
'use strict';

const { spawn } = require('node:child_process');
const { once } = require('node:events');
const path = require('node:path');

const { Client } = require('pg');

function start(owner, ...flags) {
  const program = path.join(__dirname, 'pay.js');
  const child = spawn(process.execPath, [program, '--owner', owner, ...flags], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  child.stdout.pipe(process.stdout, { end: false });
  return child;
}

// play runs both workers and resolves to the exit code of the one that stalls.
async function play(title, ...flags) {
  console.log(`\n${title}`);
  const a = start('worker-a', '--ttl', '2000', ...flags);
  const ended = once(a, 'exit');
  await once(a.stdout, 'data'); // it holds the lock, and stops itself next
  const [code] = await once(start('worker-b'), 'exit');
  // More than once: it may be about to stop still.
  const go = setInterval(() => a.kill('SIGCONT'), 50);
  const [late] = await ended;
  clearInterval(go);
  if (code !== 0) throw new Error(`worker-b exited with ${code}`);
  return late;
}

async function paidBy(db) {
  const { rows } = await db.query('SELECT paid_by FROM orders WHERE id = 42');
  return Number(rows[0].paid_by); // pg gives a bigint as text; tokens fit into a Number
}

async function main() {
  const db = new Client({ connectionString: process.env.DATABASE_URL });
  await db.connect();
  try {
    await db.query('CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, paid_by bigint NOT NULL)');
    const ended = await play('no fence: the late write lands', '--no-fence', '--stall', 'write');
    const late = await paidBy(db);
    console.log(`the order is paid by ${late}, the worker that had lost the lock`);

    const refused = await play('a fence: the database refuses it', '--stall', 'write');
    const newer = await paidBy(db);
    console.log(`the order is paid by ${newer}, the newest holder`);

    const stopped = await play('a look at the hold in time: nothing is sent', '--stall', 'look');
    const newest = await paidBy(db);
    console.log(`the order is paid by ${newest}, the newest holder`);
    if (ended !== 0 || refused !== 1 || stopped !== 1 || !(late < newer && newer < newest)) {
      throw new Error('this is not what should happen');
    }
  } finally {
    await db.end();
  }
}

main();
