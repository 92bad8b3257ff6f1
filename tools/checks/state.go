package checks

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
)

// PackageState finds package variables that change, or that can only be there to be changed. A
// table that is written down once and only read is fine.
//
// Names are resolved by the type checker, without the imported packages: enough to know that an
// identifier means the package's variable and not a local one. Changes through a pointer or a
// method are not seen, but for the types of sync and sync/atomic.
func PackageState(src *Source) []Problem {
	var problems []Problem
	for _, p := range src.Packages {
		s := stateCheck{fset: src.Fset, excepted: map[types.Object]bool{}}
		s.info = &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
		var files []*ast.File
		for _, f := range p.Files {
			if !f.Test && !f.Generated {
				files = append(files, f.AST)
			}
		}
		// The error is of imports that cannot be found, which is meant.
		config := types.Config{Error: func(error) {}, FakeImportC: true}
		s.pkg, _ = config.Check(p.Dir, src.Fset, files, s.info)
		for _, f := range files {
			s.declarations(f)
		}
		for _, f := range files {
			ast.Inspect(f, s.changes)
		}
		problems = append(problems, s.problems...)
	}
	return problems
}

type stateCheck struct {
	fset     *token.FileSet
	info     *types.Info
	pkg      *types.Package
	excepted map[types.Object]bool
	problems []Problem
}

func (s *stateCheck) report(at token.Pos, format string, args ...any) {
	where := s.fset.Position(at)
	s.problems = append(s.problems, Problem{Path: where.Filename, Line: where.Line, What: fmt.Sprintf(format, args...)})
}

// declarations looks at the package variables that a file declares.
func (s *stateCheck) declarations(f *ast.File) {
	for _, d := range f.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.VAR {
			continue
		}
		for _, each := range decl.Specs {
			if spec, ok := each.(*ast.ValueSpec); ok {
				s.variable(decl, spec)
			}
		}
	}
}

func (s *stateCheck) variable(decl *ast.GenDecl, spec *ast.ValueSpec) {
	if reason, ok := directive("state", decl.Doc, spec.Doc); ok {
		if reason == "" {
			s.report(spec.Pos(), "//checks:state wants a reason")
		}
		for _, name := range spec.Names {
			s.excepted[s.info.Defs[name]] = true
		}
		return
	}
	if len(spec.Values) == 0 && !embedded(decl.Doc) && !embedded(spec.Doc) {
		s.report(spec.Pos(), "package variable %s has no value, so something must set it: pass it in instead", spec.Names[0].Name)
	}
	for _, value := range spec.Values {
		if literal, ok := value.(*ast.CompositeLit); ok && synchronizes(literal.Type) {
			s.report(spec.Pos(), "package variable %s is shared state: make it a field", spec.Names[0].Name)
		}
	}
}

func embedded(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, comment := range doc.List {
		if len(comment.Text) > len("//go:embed ") && comment.Text[:len("//go:embed ")] == "//go:embed " {
			return true
		}
	}
	return false
}

func synchronizes(e ast.Expr) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := sel.X.(*ast.Ident)
	return ok && (from.Name == "sync" || from.Name == "atomic")
}

// changes reports statements that change a package variable.
func (s *stateCheck) changes(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.AssignStmt:
		for _, target := range n.Lhs {
			s.target(target)
		}
	case *ast.IncDecStmt:
		s.target(n.X)
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			s.target(n.Key)
			s.target(n.Value)
		}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") && len(n.Args) > 0 {
			s.target(n.Args[0])
		}
	}
	return true
}

// target reports e if what it assigns to belongs to a package variable.
func (s *stateCheck) target(e ast.Expr) {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.Ident:
			object := s.info.Uses[x]
			variable, ok := object.(*types.Var)
			if ok && s.pkg != nil && variable.Parent() == s.pkg.Scope() && !s.excepted[object] {
				s.report(x.Pos(), "changes the package variable %s: pass it in, or make it a field", x.Name)
			}
			return
		default:
			return
		}
	}
}
