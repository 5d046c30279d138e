package knot

const size = len(text)

const text = "an object of its own file"
