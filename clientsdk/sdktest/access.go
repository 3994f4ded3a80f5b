package sdktest

import (
	"net/http"
	"strings"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/internal/wire"
)

// AddKey makes an API key with a role, "read", "lock" or "admin", over the locks whose
// names start with prefix, and returns what its owner presents. From the first key on,
// every call needs one. It panics on any other role.
func (s *Server) AddKey(role, prefix string) string {
	grant := apikey.Grant{Prefixes: []string{prefix}}
	if err := grant.Role.UnmarshalText([]byte(role)); err != nil {
		panic("sdktest: " + err.Error())
	}
	text, key, err := apikey.Generate("sdktest", []apikey.Grant{grant}, apikey.Quota{})
	if err != nil {
		panic("sdktest: " + err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key.ID] = &key
	return text
}

// identify finds the key of a request; nil where the server has no keys.
func (s *Server) identify(r *http.Request) (*apikey.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) == 0 {
		return nil, nil
	}
	_, text, _ := strings.Cut(r.Header.Get("Authorization"), "Bearer ")
	key := s.keys.Lookup(text)
	if key == nil {
		return nil, apierr.New(apierr.Unauthorized, "no known API key was given")
	}
	return key, nil
}

// permit demands the role over the locks whose names start with prefix, which may be
// one lock's name. It takes the mutex.
func (s *Server) permit(r *http.Request, role apikey.Role, prefix string) error {
	key, err := s.identify(r)
	if err != nil {
		return err
	}
	if key != nil && !key.Allows(role, prefix) {
		return apierr.New(apierr.Forbidden, "the key has not the role %s over this lock", role)
	}
	return nil
}

// only demands the role over some lock before h runs. Over which, h asks itself.
func (s *Server) only(role apikey.Role, h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		key, err := s.identify(r)
		switch {
		case err != nil:
			return err
		case key != nil && !key.Has(role):
			return apierr.New(apierr.Forbidden, "this call needs a key with the role %s", role)
		}
		return h(w, r)
	}
}

func (s *Server) whoami(w http.ResponseWriter, r *http.Request) error {
	key, err := s.identify(r)
	if err != nil {
		return err
	}
	out := wire.Caller{Grants: []wire.Grant{{Role: apikey.Admin.String(), Prefixes: []string{""}}}}
	if key != nil {
		out = wire.Caller{Key: key.ID, Name: key.Name}
		for _, g := range key.Grants {
			out.Grants = append(out.Grants, wire.Grant{Role: g.Role.String(), Prefixes: g.Prefixes})
		}
	}
	return answer(w, http.StatusOK, out)
}
