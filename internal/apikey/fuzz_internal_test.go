package apikey

import (
	"encoding/json"
	"testing"
)

func oneKey(f *testing.F) (text string, key Key) {
	text, key, err := Generate("ops", []Grant{{Role: Admin, Prefixes: []string{"orders/"}}}, Quota{Held: 1})
	if err != nil {
		f.Fatal(err)
	}
	return text, key
}

// Only the text of a key is that key, to the last byte.
func FuzzSet_Lookup(f *testing.F) {
	text, key := oneKey(f)
	for _, s := range []string{"", "fk_", "fk__", text[:len(text)-1], text + "a", text + "_", "FK" + text[2:], " " + text, "fk_" + key.ID + "_"} {
		f.Add(s)
	}
	known := Set{key.ID: &key}
	f.Fuzz(func(t *testing.T, presented string) {
		if got := known.Lookup(presented); (got != nil) != (presented == text) {
			t.Errorf("%q is taken for %v", presented, got)
		}
	})
}

// What is read of a file can be written and is then the same.
func FuzzParseFile(f *testing.F) {
	_, key := oneKey(f)
	whole, err := json.Marshal(file{Keys: []Key{key}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	for _, s := range []string{``, `{}`, `{"keys":[{}]}`, `{"keys":null} {}`, `{"keys":[{"id":"aaaaaaaaaa","name":"x","sha256":"zz","grants":[]}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := parse(body)
		if err != nil {
			return
		}
		again, err := json.Marshal(file{Keys: all})
		if err != nil {
			t.Fatal(err)
		}
		same, err := parse(again)
		if err != nil || len(same) != len(all) {
			t.Fatalf("%s became %s, %v", body, again, err)
		}
		for i := range all {
			if all[i].hash != same[i].hash || all[i].Has(Admin) != same[i].Has(Admin) {
				t.Errorf("key %d of %s became another in %s", i, body, again)
			}
		}
	})
}
