// Package walk follows a page, as a reader would: from an empty directory, it writes the files,
// types the commands, and compares their output. A page that leaves a step out, or shows output
// that is not printed, fails its test.
//
//	func TestMain(m *testing.M) { os.Exit(walk.Main(m).Run()) }
//
//	func TestTutorial(t *testing.T) { walk.Follow(t, "../tutorial.md", nil) }
//
// # What a page may have
//
// A ```console block has commands, each after "$ ", and below each the lines that it prints. A
// command that ends with a backslash goes on in the next line. There is one shell for the whole
// page: directories, variables and background jobs last, also in the next block. Each line that is
// shown has to be printed, in this order; there may be more, such as log lines. In a line that is
// shown, "..." stands for any text, and a number of seconds (0.51s) for any other. A command has to
// succeed, unless the shown lines have FAIL, or a line that begins with "exit status" or "curl:".
//
// A command that ends with "&" goes on in the background. The next step waits for the lines that
// are shown below it; If there are none, it waits until the ports that the command names as
// localhost:PORT accept connections, or else the ports that the page's files name. Output of a
// process in the background can be shown below any later command.
//
// An ```sh block has lines "export NAME=value": servers that the reader has. The walk starts its
// own servers for them: REDIS_URL is an empty Redis, DATABASE_URL an empty database of a
// PostgreSQL. The program reads them from its environment.
//
// Any other block is a file, whose name ends the line before it: "`main.go`:". A second block with
// the same name replaces the first.
//
// # Ports
//
// Walks run at the same time, and so do test binaries. So each page has its own ports, as
// localhost:PORT. TestWalksHaveTheirOwnPorts, in docs/snippets, compares all pages of the
// repository. A walk waits for its ports to be free, and then for the ports on which its commands
// listen, for five minutes each: "go run" may have to compile.
//
// # Modules
//
// The modules of this repository that are published are served from this checkout, so that "go mod
// tidy" finds them. Other modules come from the module cache of this machine, or from its proxy. A
// page names their versions ("go get example.com/module@v1.2.3"), so that no release of other
// modules changes its output. All walks of a test binary share a module cache, which is empty when
// the first begins; the machine's build cache has the compiled packages (-trimpath makes them the
// same), programs are linked without DWARF, which is faster, and tests always run (-count=1).
package walk
