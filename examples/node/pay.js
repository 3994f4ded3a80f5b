// Pays order 42 under a lock: in PostgreSQL, or over HTTP where --store names a service.
//
//   node pay.js [--owner NAME] [--ttl MS] [--store URL] [--stall look|write] [--no-fence]
//
// With --stall the process stops itself (SIGSTOP), as a long pause would: before its last
// look at the hold, or between that look and the write, where no look can help. With
// --no-fence it writes without the token, as most programs do.
'use strict';

const { parseArgs } = require('node:util');

const { acquire, send, Stale, Lost } = require('./fenced');

const LOCK = 'orders/42';

// fence runs work in a transaction that commits only while nobody newer has written.
//
// Advance first, then read, then write: what was read before may lack the last holder's
// write. If this process stalls, the server ends the transaction after left ms, so that
// the next holder does not wait for its row locks.
async function fence(db, hold, left, work) {
  const limit = String(Math.max(1, Math.floor(left)));
  await db.query('BEGIN');
  try {
    for (const name of ['lock_timeout', 'statement_timeout', 'idle_in_transaction_session_timeout']) {
      await db.query('SELECT set_config($1, $2, true)', [name, limit]);
    }
    await db.query('SELECT fence.advance($1, $2, false)', [hold.lock, hold.token]);
    await work();
    const end = await db.query('COMMIT'); // of a transaction with an error it is a ROLLBACK
    if (end.command !== 'COMMIT') throw new Error('nothing is written: an error was ignored');
  } catch (err) {
    await db.query('ROLLBACK').catch(() => {});
    if (err.code !== 'LF001') throw err; // no other error means stale
    const { token, current } = JSON.parse(err.detail);
    throw new Stale(token, current);
  }
}

// connect opens a connection. Where the server ends it between two queries, the next one
// says so: an event 'error' that nobody listens to would end the process.
async function connect() {
  const { Client } = require('pg');
  const db = new Client({ connectionString: process.env.DATABASE_URL });
  db.on('error', () => {});
  await db.connect();
  return db;
}

async function pay(db, token) {
  await db.query(
    `INSERT INTO orders (id, paid_by) VALUES (42, $1)
     ON CONFLICT (id) DO UPDATE SET paid_by = EXCLUDED.paid_by`, [token]);
}

async function write(args, hold, left) {
  if (args.store) { // it compares the token in its own transaction, and answers 412
    await send('PUT', `${args.store}/orders/42`, { headers: { 'Fencing-Token': String(hold.token) }, timeout: left });
    return;
  }
  const db = await connect();
  try {
    if (args['no-fence']) await pay(db, hold.token);
    else await fence(db, hold, left, () => pay(db, hold.token));
  } finally {
    db.end().catch(() => {}); // not awaited: older versions never return where it has ended
  }
}

async function run(args) {
  const hold = await acquire(LOCK, { owner: args.owner, ttl: Number(args.ttl), wait: 30_000 });
  try {
    console.log(`${args.owner} holds ${LOCK} with token ${hold.token}`);
    if (args.stall === 'look') process.kill(process.pid, 'SIGSTOP');
    const left = hold.check();
    if (args.stall === 'write') process.kill(process.pid, 'SIGSTOP');
    await write(args, hold, left);
    console.log(`${args.owner} has paid with token ${hold.token}`);
  } finally {
    await hold.release();
  }
}

async function main() {
  const { values: args } = parseArgs({
    options: {
      owner: { type: 'string', default: 'pay.js' },
      ttl: { type: 'string', default: '15000' },
      store: { type: 'string' },
      stall: { type: 'string' },
      'no-fence': { type: 'boolean' },
    },
  });
  try {
    await run(args);
  } catch (err) {
    if (err instanceof Stale) console.error(`${args.owner} is refused by the store: ${err.message}`);
    else if (err instanceof Lost) console.error(`${args.owner} stops before the write: ${err.message}`);
    else throw err;
    process.exitCode = 1;
  }
}

module.exports = { connect, fence };
if (require.main === module) main();
