// Package doctest runs what the documents print: README.md, docs/*.md and the
// pages in other languages below docs/. It has no code of its own.
//
// # How a block is run
//
// The language behind the fence says what happens to a block:
//
//	sh    runs, with all shell of the page as one script, on the page's stage
//	sql   runs on a database with the schema of pgfence, or on MariaDB
//	go    must stand, line by line, in a program or tested example
//	yaml  is written to a file (see the marks), or refused
//	text  is output or a picture, and is not run
//
// Anything else, a fence without a language too, fails the test. The table pages
// in pages_test.go says which stage a page has: a server on the address that the
// documents name, a database, a cluster that is reached by ssh. A page that is not
// in it has none, and its shell fails the test until it has one or is marked.
//
// # Marks
//
// A comment right above a block, which readers do not see:
//
//	<!-- not run: why -->            the block is not run, and why
//	<!-- file NAME -->               the block is the content of that file
//	<!-- promtool check config -->   Prometheus's own tool must accept the block
//
// A block of SQL whose text has "-- refused: SQLSTATE" must fail so.
//
// Besides, links and anchors must lead somewhere, tests that a page names must
// exist, and the tables of metrics and alerts are compared with a running server.
package doctest
