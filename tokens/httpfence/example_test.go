package httpfence_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/httpfence"
	"github.com/fenced/fenced/tokens/memfence"
)

// A service refuses a writer whose lock has passed on.
func ExampleFence_Handle() {
	store := memfence.New()
	lockOf := func(r *http.Request) (string, error) { return "account/" + r.PathValue("id"), nil }
	fence, err := httpfence.New(httpfence.Config{Lock: lockOf})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("PUT /account/{id}", fence.Handle(func(w http.ResponseWriter, r *http.Request) error {
		lock, _ := lockOf(r)
		token, _ := tokens.FromContext(r.Context(), lock)
		tx := store.Begin()
		defer tx.Rollback()
		claim := tokens.Claim{Resource: lock, Token: token, Mode: tokens.Renewable}
		if _, err := store.Advance(r.Context(), tx, claim); err != nil {
			return err
		}
		if err := tx.Write(lock, "written under "+token.String()); err != nil {
			return err
		}
		return tx.Commit()
	}))

	put := func(token string) {
		r := httptest.NewRequest("PUT", "/account/42", nil)
		r.Header.Set(tokens.Header, token)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Print(w.Code, "\n", w.Body, "\n")
	}
	put("34")
	put("33") // the holder before, which was paused meanwhile
	// Output:
	// 200
	//
	// 412
	// {"title":"A newer holder has written","status":412,"code":"stale_token","detail":"Nothing was written. Do not repeat it with this token.","resource":"account/42","presented":33,"current":34}
}

// A client sends the token that its context carries.
func ExampleTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := tokens.FromHeader(r.Header)
		fmt.Fprintln(w, "token", token, err)
	}))
	defer server.Close()

	client := &http.Client{Transport: &httpfence.Transport{
		Base: server.Client().Transport,
		Lock: func(r *http.Request) (string, error) { return strings.TrimPrefix(r.URL.Path, "/"), nil },
	}}
	defer client.CloseIdleConnections()
	ctx := tokens.NewContext(context.Background(), "account/42", 34)
	r, err := http.NewRequestWithContext(ctx, "PUT", server.URL+"/account/42", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Print(string(body))
	// Output: token 34 <nil>
}
