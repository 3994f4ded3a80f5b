// Package console is the web page of a fenced server: what is locked, by whom,
// with which token and for how long, live, with a break for people on call.
//
// # What it promises
//
//   - The page is made of the files beside this one, embedded as they are: no
//     build step, no other host, no inline script or style. It works wherever the
//     server can be reached.
//   - It uses the public API only, with the API key of its user where keys are on.
//     The key is kept in the tab's sessionStorage and goes nowhere else.
//   - Text from callers reaches the page as text. Its policy demands trusted types
//     and allows none, so that a browser refuses every way to turn text into
//     markup.
//   - What it shows converges to what the server says: events move it at once, and
//     the pages of the list that are in view are read again every second or two,
//     because renewals are not events.
//
// # What it does not promise
//
// The time left is the server's answer, counted down by the browser: good for
// people, no proof of anything. Above 20,000 locks it lists the first 20,000 and
// says so. Breaking a hold there, as anywhere, does not fence it.
//
// # Errors and concurrency
//
// Nothing here can fail at run time. Files may be served by any number of
// goroutines.
//
//	for _, file := range console.Files() {
//		mux.Handle("GET "+file.Path, file)
//	}
package console
