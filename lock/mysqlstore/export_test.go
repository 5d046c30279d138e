package mysqlstore

// Kind is the name of kindOf.
func Kind(text string) string {
	return map[kind]string{plain: "plain", unclear: "unclear", ending: "ending"}[kindOf(text)]
}
