package console_test

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver"
)

var screenshots = flag.Bool("screenshots", false, "write the pictures of the page to docs/img")

const pictures = "../../docs/img"

// TestScreenshots makes the pictures of the documentation, and checks without the
// flag that what they show can still be shown.
func TestScreenshots(t *testing.T) {
	t.Parallel()
	p := openTab(t, nil)
	furnish(p)
	story(p, "payouts/2026-11")
	p.size(1280, 800, false)
	p.open("")
	p.until(`document.querySelectorAll("#locks tbody tr").length > 15 && document.querySelector(".timebar[data-level=full]")`)
	p.until(`document.querySelector("#conn").dataset.state === "live"`)
	// What happens while the page looks on fills its feed.
	p.release(p.acquire("orders/1207", "checkout-3", time.Minute))
	p.breakHold("coupons/black-friday", p.acquire("coupons/black-friday", "mailer-1", time.Minute).Token, "host is down")
	p.acquire("ladder/season-9", "rewarder-1", time.Second)
	p.until(`document.querySelector(".feed .k-expired")`)
	p.picture("console-desktop.png")
	p.size(1280, 800, true)
	p.picture("console-dark.png")
	p.size(390, 780, false)
	p.until(`document.documentElement.scrollWidth <= 390`)
	p.picture("console-phone.png")

	p.size(1280, 860, false)
	p.open("#/lock?name=payouts%2F2026-11")
	p.until(`document.querySelectorAll(".timeline .span").length >= 5`)
	p.picture("console-lock.png")
	p.size(390, 1100, true)
	p.until(`document.querySelector(".timeline").clientWidth < 390 && document.documentElement.scrollWidth <= 390`)
	p.picture("console-lock-phone.png")
	p.size(1280, 800, false)
	p.do(chromedp.Click(css(".lock-head .danger")))
	p.until(`document.querySelector("#break").open`)
	p.picture("console-break.png")
}

// furnish takes locks as a shop on a normal day has them.
func furnish(p *tab) {
	p.Helper()
	owners := []string{"checkout-1", "checkout-2", "checkout-3", "rewarder-1", "rewarder-2", "stock-sync"}
	for i := range 16 {
		p.acquire(fmt.Sprintf("orders/%d", 1180+i), owners[i%len(owners)], time.Duration(60+7*(i%8))*time.Second)
	}
	p.acquire("stock/warehouse-berlin", "stock-sync", 90*time.Second)
	p.acquire("在庫/大阪", "在庫同期-2", 75*time.Second)
	for i, waiter := range []string{"rewarder-2", "rewarder-3", "rewarder-4"} {
		if i == 0 {
			p.acquire("rewards/player/90210", "rewarder-1", 80*time.Second)
		}
		p.queue("rewards/player/90210", waiter, 100+i)
	}
}

// story gives a lock a past worth a picture.
func story(p *tab, lock string) {
	p.Helper()
	for i, ms := range []int{420, 650, 180, 900} {
		hold := p.acquire(lock, fmt.Sprintf("rewarder-%d", i%3+1), time.Minute)
		p.waitInVain(lock, time.Duration(ms)*time.Millisecond)
		if i == 2 {
			p.breakHold(lock, hold.Token, "host is down")
		} else {
			p.release(hold)
		}
	}
	p.acquire(lock, "rewarder-2", time.Second)
	hold, err := p.engine.Acquire(p.Context(), lockserver.AcquireRequest{
		Lock: lock, Owner: "rewarder-3", TTL: 30 * time.Second, Wait: 10 * time.Second,
	})
	if err != nil {
		p.Fatal(err)
	}
	p.waitInVain(lock, 700*time.Millisecond)
	p.release(hold)
	_, err = p.engine.Acquire(p.Context(), lockserver.AcquireRequest{
		Lock: lock, Owner: "rewarder-1", TTL: 30 * time.Second, Metadata: map[string]string{"host": "db-3", "build": "2026.11.4"},
	})
	if err != nil {
		p.Fatal(err)
	}
	p.waitInVain(lock, 300*time.Millisecond)
	p.queue(lock, "rewarder-2", 201)
	p.waitInVain(lock, 400*time.Millisecond)
	p.queue(lock, "payout-check", 202)
}

// waitInVain queues for a lock that stays held, which takes exactly that long.
func (p *tab) waitInVain(lock string, d time.Duration) {
	p.Helper()
	_, err := p.engine.Acquire(p.Context(), lockserver.AcquireRequest{Lock: lock, Owner: "impatient", Wait: d})
	if apierr.CodeOf(err) != apierr.LockHeld {
		p.Fatalf("got %v", err)
	}
}

func (p *tab) picture(file string) {
	p.Helper()
	shot, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.Fatal(err)
	}
	if !*screenshots {
		return
	}
	if err := os.WriteFile(filepath.Join(pictures, file), small(p, shot), 0o644); err != nil {
		p.Fatal(err)
	}
}

// small packs a picture into the 256 colours that it uses most.
func small(p *tab, shot []byte) []byte {
	p.Helper()
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		p.Fatal(err)
	}
	uses := map[color.Color]int{}
	bounds := img.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			uses[img.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(uses), func(a, b color.Color) int { return uses[b] - uses[a] })
	flat := image.NewPaletted(bounds, colours[:min(len(colours), 256)])
	draw.Draw(flat, bounds, img, bounds.Min, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, flat); err != nil {
		p.Fatal(err)
	}
	return out.Bytes()
}
