package redisstore

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// form is the kind of Redis that a URL names.
type form uint8

const (
	formSingle form = iota
	formCluster
	formSentinel
)

// target is a URL of Open, rewritten for go-redis' parser of its form.
type target struct {
	form      form
	rewritten string
	private   bool // go-redis' error on the URL may have a piece of the password
}

const urlForms = "want redis://[user:password@]host:port[/db], rediss://, unix://[user:password@]/path, " +
	"redis-cluster://[user:password@]h1:p1,h2:p2 or redis-sentinel://[user:password@]h1:p1,h2:p2/master-name[/db]; " +
	"percent-encode all of user and password except letters and digits"

func (t target) refuse(err error) error {
	if t.private {
		err = errors.New("malformed")
	}
	if _, ok := errors.AsType[*url.Error](err); ok { // its text has the whole URL
		err = errors.New("malformed")
	}
	text := strings.TrimPrefix(err.Error(), "redis: ")
	return fmt.Errorf("redisstore.Open: URL: %s; %s", text, urlForms)
}

func parseTarget(raw string) (target, error) {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		return target{}, target{private: true}.refuse(nil)
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	// An "@" behind the authority means that it ended too early, at a "/", "?" or
	// "#" of the password.
	path, query, _ := strings.Cut(path, "?")
	t := target{private: strings.Contains(query, "@")}
	if strings.Contains(rest, "#") || strings.Contains(path, "@") {
		return target{}, target{private: true}.refuse(nil)
	}
	user, hosts := "", authority
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return target{}, target{private: true}.refuse(nil)
	}
	scheme = strings.ToLower(scheme)
	switch scheme {
	case "redis", "rediss", "unix":
		t.rewritten = raw
		return t, nil
	case "redis-cluster", "rediss-cluster":
		t.form = formCluster
		if strings.Trim(path, "/") != "" {
			return target{}, t.refuse(errors.New("a Cluster has one database only, without a number"))
		}
	case "redis-sentinel", "rediss-sentinel":
		t.form = formSentinel
		if user, path, err = sentinelParts(user, path, values); err != nil {
			return target{}, t.refuse(err)
		}
	default:
		return target{}, t.refuse(fmt.Errorf("unknown scheme %q", scheme))
	}

	if t.rewritten, err = severalHosts(cutForm(scheme)+"://"+user, hosts, path, values); err != nil {
		return target{}, t.refuse(err)
	}
	return t, nil
}

// cutForm returns the scheme of one server: redis or rediss.
func cutForm(scheme string) string {
	plain, _, _ := strings.Cut(scheme, "-")
	return plain
}

// severalHosts returns the URL of several hosts in the form of go-redis: the first in its
// place, the others as parameters.
func severalHosts(before, hosts, path string, values url.Values) (string, error) {
	first, others, _ := strings.Cut(hosts, ",")
	if first == "" {
		return "", errors.New("no host")
	}
	for host := range strings.SplitSeq(others, ",") {
		if host != "" {
			values.Add("addr", host)
		}
	}
	return before + first + path + "?" + values.Encode(), nil
}

// sentinelParts moves the master's name and credentials to the places where go-redis looks for
// them: go-redis uses the user and the password of the URL for the Sentinels.
func sentinelParts(user, path string, values url.Values) (newUser, newPath string, err error) {
	name, db, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if name, err = url.PathUnescape(name); err != nil || name == "" {
		return "", "", errors.New("no master name")
	}
	values.Set("master_name", name)

	parsed, err := url.Parse("redis://" + user)
	if err != nil {
		return "", "", errors.New("malformed user or password")
	}
	if parsed.User != nil {
		password, _ := parsed.User.Password()
		values.Set("username", parsed.User.Username())
		values.Set("password", password)
	}
	sentinel := url.UserPassword(values.Get("sentinel_username"), values.Get("sentinel_password"))
	if values.Has("sentinel_password") {
		newUser = sentinel.String() + "@"
	}
	values.Del("sentinel_username")
	values.Del("sentinel_password")
	if db != "" {
		newPath = "/" + db
	}
	return newUser, newPath, nil
}
