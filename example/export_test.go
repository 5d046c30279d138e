package main

// Run is run, for tests that are clients of the desk.
var Run = run
