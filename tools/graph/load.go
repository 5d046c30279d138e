package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// measured is a package: its files, what they use of each other, and its types.
type measured struct {
	path  string
	files graph
	lines int
	types []methodSet // the type with the most methods first
}

// methodSet counts the methods that a type declares.
type methodSet struct {
	name           string
	methods, files int
}

// load type-checks the packages, without their tests.
func load(patterns []string) ([]measured, error) {
	found, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax}, patterns...)
	if err != nil {
		return nil, err
	}
	all := make([]measured, 0, len(found))
	for _, p := range found {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("%s: %w", p.PkgPath, p.Errors[0])
		}
		all = append(all, measure(p))
	}
	if len(all) == 0 {
		return nil, errors.New("no packages")
	}
	return all, nil
}

func measure(p *packages.Package) measured {
	m := measured{path: p.PkgPath}
	fileOf := func(pos token.Pos) string { return filepath.Base(p.Fset.Position(pos).Filename) }
	for _, file := range p.Syntax {
		m.files.add(fileOf(file.Package))
		m.lines += p.Fset.File(file.Package).LineCount()
	}
	for use, object := range p.TypesInfo.Uses {
		if object.Pkg() == p.Types {
			m.files.connect(fileOf(use.Pos()), fileOf(object.Pos()), object.Name())
		}
	}
	m.types = methodSets(p, fileOf)
	return m
}

// methodSets returns the types that have methods, the one with the most first.
func methodSets(p *packages.Package, fileOf func(token.Pos) string) []methodSet {
	methods, files := map[string]int{}, map[string]map[string]bool{}
	for _, file := range p.Syntax {
		for _, declaration := range file.Decls {
			f, isFunction := declaration.(*ast.FuncDecl)
			if !isFunction || f.Recv == nil {
				continue
			}
			name := receiver(p.TypesInfo.Defs[f.Name].Type())
			methods[name]++
			if files[name] == nil {
				files[name] = map[string]bool{}
			}
			files[name][fileOf(f.Pos())] = true
		}
	}
	sets := make([]methodSet, 0, len(methods))
	for name, n := range methods {
		sets = append(sets, methodSet{name, n, len(files[name])})
	}
	slices.SortFunc(sets, func(a, b methodSet) int {
		if a.methods != b.methods {
			return b.methods - a.methods
		}
		return strings.Compare(a.name, b.name)
	})
	return sets
}

// receiver names the type that has a method.
func receiver(method types.Type) string {
	t := method.(*types.Signature).Recv().Type()
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	return t.(*types.Named).Obj().Name()
}
