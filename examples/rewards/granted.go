package rewards

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Granted asks the item server at base what it granted under key: nil for nothing.
// Nothing is no proof while a request with that key may still be on its way; send
// it again instead of deciding by it.
func Granted(ctx context.Context, client *http.Client, base, key string) (*Reward, error) {
	res, err := get(ctx, client, base+"/v1/grants?key="+url.QueryEscape(key))
	if err != nil {
		return nil, fmt.Errorf("status of %s: %w", key, err)
	}
	defer discard(res)
	switch res.StatusCode {
	case http.StatusOK:
		r, err := grantIn(res, key)
		if err != nil {
			return nil, fmt.Errorf("status of %s: %w", key, err)
		}
		return &r, nil
	case http.StatusNotFound:
		return nil, nil
	default:
		return nil, fmt.Errorf("status of %s: %w", key, unexpected(res))
	}
}

// grantIn reads the reward that an answer says was granted under key. What answers in
// the item server's place, a login page or the list of all behind a redirect, says so of
// nothing, or of another.
func grantIn(res *http.Response, key string) (r Reward, err error) {
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(&r); err != nil {
		return r, fmt.Errorf("the answer is no reward: %w", err)
	}
	if r.Key() != key {
		return r, fmt.Errorf("the answer is about %q", clip(r.Key()))
	}
	return r, nil
}

// A GrantPage is a page of the list of everything that an item server has granted.
type GrantPage struct {
	Grants []Reward `json:"grants"`
	// Next is where the next page begins; 0 on the last.
	Next int64 `json:"next,omitempty"`
}

// VerifyItems compares the distinct rewards owed with everything that the item server
// at base has granted, row by row, as its list has it. To ask for each reward owed
// would not do: that shows neither a second grant nor one that nobody is owed. Run it
// when the publishers are done. A page that the server cannot give just now (503) is
// asked for again for up to 10 s.
func VerifyItems(ctx context.Context, client *http.Client, base string, owed []Reward) (Verdict, error) {
	var granted []Reward
	for after := int64(0); ; {
		page, err := grantPage(ctx, client, base, after)
		if err != nil {
			return Verdict{}, fmt.Errorf("verify items: %w", err)
		}
		granted = append(granted, page.Grants...)
		switch {
		case page.Next == 0:
			return Compare(owed, granted), nil
		case page.Next <= after:
			return Verdict{}, fmt.Errorf("verify items: the page after %d says that the next is %d", after, page.Next)
		}
		after = page.Next
	}
}

func grantPage(ctx context.Context, client *http.Client, base string, after int64) (page GrantPage, err error) {
	res, err := getPatiently(ctx, client, fmt.Sprintf("%s/v1/grants?after=%d", base, after))
	if err != nil {
		return page, err
	}
	defer discard(res)
	if res.StatusCode != http.StatusOK {
		return page, fmt.Errorf("list of grants: %w", unexpected(res))
	}
	return page, json.NewDecoder(io.LimitReader(res.Body, maxPage)).Decode(&page)
}

func get(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// patience is how long a list is asked for while the server has no database.
const patience = 10 * time.Second

// getPatiently asks again, when the server says, while it is unavailable: a restart of
// its database ends connections that it only meets one by one.
func getPatiently(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	for end := time.Now().Add(patience); ; {
		res, err := get(ctx, client, url)
		if err != nil || res.StatusCode != http.StatusServiceUnavailable {
			return res, err
		}
		wait := retryAfter(res)
		if time.Now().Add(wait).After(end) {
			return res, nil
		}
		discard(res)
		if err := pause(ctx, max(wait, firstPause)); err != nil {
			return nil, err
		}
	}
}

// maxPage bounds a page of grants.
const maxPage = 1 << 20

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 10

// discard reads what is left of the answer, so that its connection can be used
// again.
func discard(res *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	_ = res.Body.Close()
}

// answerError says what a refusal said, in the form of RFC 9457 where it has it.
func answerError(res *http.Response) error {
	if res.StatusCode < 400 {
		return nil
	}
	var problem struct{ Code, Detail string }
	_ = json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(&problem) // without one the status must do
	return fmt.Errorf("item server: %s: %s %s", res.Status, problem.Code, problem.Detail)
}

// unexpected is the error for an answer that is neither what was asked for nor,
// perhaps, a refusal.
func unexpected(res *http.Response) error {
	if err := answerError(res); err != nil {
		return err
	}
	return fmt.Errorf("item server: %s", res.Status)
}
