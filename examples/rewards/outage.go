package rewards

import (
	"context"
	"log/slog"
	"sync"
)

// outage says once that something cannot be reached, and once that it is back. Who
// works on through all outages would otherwise wait without a word for what was never
// there, such as a database of another name.
type outage struct {
	log  *slog.Logger
	what string

	mu sync.Mutex
	on bool
}

// note takes the result of a try; what ctx has ended is none.
func (o *outage) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err != nil && !o.on:
		o.log.Warn(o.what+" cannot be used; trying on", "error", err)
	case err == nil && o.on:
		o.log.Info(o.what + " can be used again")
	}
	o.on = err != nil
}
