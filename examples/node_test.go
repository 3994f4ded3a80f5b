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
}
