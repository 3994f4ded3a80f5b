package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// envPrefix starts the environment variable of every setting.
const envPrefix = "FENCED_"

func envName(setting string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// foreignEnv are variables with the prefix that are no settings of the server and no
// mistake: fencectl reads or sets them, and Kubernetes sets the last two in every pod
// beside a service called fenced.
var foreignEnv = regexp.MustCompile("^FENCED_(CONFIG|ADDR|API_KEY|CA|CERT|KEY|DATABASE_URL|HOLD|LOCK|TOKENS?|IMAGE|SERVICE_.*|PORT(_.*)?)$")

// strays returns the names in environ that look like settings and are none. Of a
// setting that is misspelt in a file or a flag the server says so and ends; of one in
// the environment it only warns, because others may own the name.
func strays(settings *pflag.FlagSet, environ []string) []string {
	known := make(map[string]bool)
	settings.VisitAll(func(f *pflag.Flag) { known[envName(f.Name)] = true })
	var names []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, envPrefix) && !known[name] && !foreignEnv.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// load fills in the settings that no flag has set: from the environment, where an
// empty variable counts as none, else from the file, which may be "". What neither
// has keeps its default. It returns where each setting comes from.
func load(settings *pflag.FlagSet, getenv func(string) string, file string) (map[string]string, error) {
	values, err := readFile(settings, file)
	if err != nil {
		return nil, err
	}
	from := make(map[string]string)
	settings.VisitAll(func(f *pflag.Flag) {
		env := getenv(envName(f.Name))
		value, inFile := values[f.Name]
		var bad error
		switch {
		case f.Changed:
			from[f.Name] = "flag"
		case env != "":
			from[f.Name] = envName(f.Name)
			bad = f.Value.Set(env)
		case inFile && value != nil: // "key:" and nothing more is as good as no key
			from[f.Name] = file
			bad = setAny(f.Value, value)
		default:
			from[f.Name] = "default"
		}
		if bad != nil && err == nil {
			err = fmt.Errorf("%s, from %s: %w", f.Name, from[f.Name], bad)
		}
	})
	return from, err
}

// readFile reads a config file and refuses keys that are no settings.
func readFile(settings *pflag.FlagSet, path string) (map[string]any, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config file: %w", err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		return nil, fmt.Errorf("config file %s: %w", path, err)
	}
	for key := range values {
		if settings.Lookup(key) == nil {
			return nil, fmt.Errorf("config file %s: %q is no setting; fenced serve --help lists them", path, key)
		}
	}
	return values, nil
}

// setAny gives a setting a value of the file: a list, or anything that reads like
// the flag's text.
func setAny(setting pflag.Value, value any) error {
	list, isList := value.([]any)
	slice, takesList := setting.(pflag.SliceValue)
	switch {
	case !isList:
		text, err := scalar(value)
		if err != nil {
			return err
		}
		return setting.Set(text)
	case !takesList:
		return fmt.Errorf("a list where one value is expected")
	}
	texts := make([]string, 0, len(list))
	for _, item := range list {
		text, err := scalar(item)
		if err != nil {
			return err
		}
		texts = append(texts, text)
	}
	return slice.Replace(texts)
}

func scalar(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case bool, float64:
		text, err := json.Marshal(v)
		return string(text), err
	}
	return "", fmt.Errorf("neither a text nor a number nor true or false")
}

// render writes the settings as a config file; comment returns what stands above a
// key and what behind its value.
func render(settings *pflag.FlagSet, comment func(*pflag.Flag) (above, behind string)) string {
	var b strings.Builder
	settings.VisitAll(func(f *pflag.Flag) {
		above, behind := comment(f)
		if above != "" {
			fmt.Fprintf(&b, "\n# %s\n", above)
		}
		fmt.Fprintf(&b, "%s: %s", f.Name, yamlValue(f))
		if behind != "" {
			fmt.Fprintf(&b, " # %s", behind)
		}
		b.WriteByte('\n')
	})
	return b.String()
}

// yamlValue returns a value as YAML, of which JSON is a part, with secrets masked.
func yamlValue(f *pflag.Flag) string {
	var value any = f.Value.String()
	switch v := f.Value.(type) {
	case pflag.SliceValue:
		value = append([]string{}, v.GetSlice()...)
	default:
		if f.Value.Type() == "bool" {
			return f.Value.String()
		}
		if secrets[f.Name] && value != "" {
			value = "********"
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic("fenced: a setting must encode: " + err.Error())
	}
	return string(text)
}
