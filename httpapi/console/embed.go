package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed index.html static
var files embed.FS

// policy allows the page's own files and calls to its own server, nothing inline,
// and no text that becomes markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// contentTypes are fixed here: package mime asks the machine's files, which may
// say anything.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// File is one file of the page. It answers GET and HEAD.
type File struct {
	// Path is where it must be served: / for the page, /console/... for the rest.
	Path string

	contentType, etag string
	body              []byte
}

// Files returns the files of the page.
func Files() []File {
	var list []File
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		list = append(list, newFile(name, body))
		return nil
	})
	if err != nil {
		panic(err) // embedded files can be read
	}
	return list
}

func newFile(name string, body []byte) File {
	sum := sha256.Sum256(body)
	f := File{
		Path:        "/console/" + strings.TrimPrefix(name, "static/"),
		contentType: contentTypes[path.Ext(name)],
		etag:        `"` + hex.EncodeToString(sum[:12]) + `"`,
		body:        body,
	}
	if name == "index.html" {
		f.Path = "/"
	}
	return f
}

// ServeHTTP implements http.Handler. Browsers ask again each time and get 304
// until the server is another one.
func (f File) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
}
