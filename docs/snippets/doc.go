// Package snippets holds the code of the pages in docs, so that it is compiled
// and its claims are tested, and follows the tutorial as a newcomer would. It is
// a module of its own: nobody who uses httplatch gets a web framework with it.
package snippets
