//go:build linux

package examples_test

import (
	"testing"
)

// keptJS is kept for Node.
const keptJS = `
const { acquire, Lost } = require('./fenced');
(async () => {
  const hold = await acquire('kept', { owner: 'kept.js', ttl: 3000 });
  console.log('token', hold.token);
  try {
    for (; ;) { hold.check(); await new Promise((done) => setTimeout(done, 20)); }
  } catch (err) {
    if (!(err instanceof Lost)) throw err;
    console.log(err.message);
  }
})();
`

// unclearJS is unclear for Node, and the rest behind it.
const unclearJS = `
const { send, Unavailable } = require('./fenced');
send('PUT', process.env.FENCED_ADDR + '/orders/42').catch((err) => {
  if (!(err instanceof Unavailable)) throw err;
  console.log('not known:', err.message);
}).then(() => {` + keptJS + `});
`

// ignoresJS is ignores for Node, and after it a unit of work that lasts longer than the
// server lets it: both come back as errors, the second one also to the connection.
const ignoresJS = `
const { setTimeout: sleep } = require('node:timers/promises');
const { acquire } = require('./fenced');
const { connect, fence } = require('./pay');
(async () => {
  const hold = await acquire('orders/43', { owner: 'ignores.js' });
  const db = await connect();
  const says = (err) => console.log(err ? 'not done: ' + err.message : 'done');
  await fence(db, hold, 10000, () => db.query('SELECT 1/0').catch(() => {})).then(says, says);
  await fence(db, hold, 200, () => sleep(1000)).then(says, says);
  await hold.release();
  console.log('released');
})();
`

// TestNode_HTTP is what needs no PostgreSQL in Node.
func TestNode_HTTP(t *testing.T) {
	t.Parallel()
	node := interpreter(t, "node", "Node 18 or newer", []string{"node", "nodejs"}, "-e", "fetch")
	p := newPlace(t, "node")
	p.prints([]string{"I hold orders/42 with token"}, node, "quickstart.js")
	p.prints([]string{"has paid with token"}, node, "pay.js", "--store", p.store)
	p.stalls("3000", node, "pay.js")
	p.keeps(node, "-e", keptJS)
	p.survives(node, "-e", unclearJS)
	p.givesUp(node, "pay.js", "--store", p.store)
}

func TestNode_PostgreSQL(t *testing.T) {
	t.Parallel()
	node := interpreter(t, "node", "Node with Debian's node-pg", []string{"node", "nodejs"}, "-e", "fetch; require('pg')")
	p := newPlace(t, "node")
	p.prints(simulated, node, "simulate.js")
	p.prints([]string{"not done: nothing is written: an error was ignored", "not done: ", "released"}, node, "-e", ignoresJS)
}
