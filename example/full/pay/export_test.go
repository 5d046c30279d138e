package main

var (
	Main    = main
	NewShop = newShop
)
