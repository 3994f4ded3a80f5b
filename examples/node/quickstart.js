// Takes a lock, does its work under it, and gives it back.
'use strict';

const { acquire } = require('./fenced');

async function main() {
  const hold = await acquire('orders/42', { owner: 'quickstart.js' });
  try {
    console.log('I hold orders/42 with token', hold.token); // send it with every write
    hold.check(); // before each step: throws Lost once the lease may be over
  } finally {
    await hold.release();
  }
}

main();
