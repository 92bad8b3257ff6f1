// Package checks tests the house rules that no linter tests, as part of `go test ./...`:
//
//   - every package says in its doc comment what it is for;
//   - no package has a name that says nothing (util, common, types, helpers);
//   - files stay short: 500 lines, tests 800, main.go 100, generated files any;
//   - no package variable changes: tables yes, state no;
//   - no tracked text file names a folder of somebody's machine;
//   - every link between Markdown files leads to a file, and to a heading if it names one.
//
// An exception is written where it is, with its reason:
//
//	//checks:long REASON    on a line of its own, anywhere in a file that may be longer
//	//checks:state REASON   above the declaration of a variable that may change
//
// Each rule is a function from files to problems, so that it is itself tested on small trees.
package checks
