package mysqlfence

import (
	"crypto/rand"
	"database/sql"
	"runtime"
	"sync"
	"weak"
)

// unitID names a unit of work. It stands in the row of every fence that the unit
// advanced, which tells three things apart that look alike otherwise: that a token
// equal to the fence is this unit's own, that it is another's, and that the
// advance of this unit is no longer in effect.
type unitID [16]byte

// units gives every transaction an identity. MySQL has none that a client may
// read, and a connection's outlives the transaction. The keys are weak: a
// transaction that is garbage takes its entry with it.
var units = struct {
	sync.Mutex
	ids map[weak.Pointer[sql.Tx]]unitID
}{ids: make(map[weak.Pointer[sql.Tx]]unitID)}

func unitOf(tx *sql.Tx) unitID {
	key := weak.Make(tx)
	units.Lock()
	defer units.Unlock()
	id, known := units.ids[key]
	if !known {
		rand.Read(id[:])
		units.ids[key] = id
		runtime.AddCleanup(tx, forget, key)
	}
	return id
}

func forget(key weak.Pointer[sql.Tx]) {
	units.Lock()
	defer units.Unlock()
	delete(units.ids, key)
}
